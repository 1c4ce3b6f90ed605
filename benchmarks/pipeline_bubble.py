"""Share of time in which the ranks of a pipeline wait, with equal stages whose blocks sleep.

A forward and backward of one network, with M micro-batches on S ranks, in wall-clock seconds, against
(S - 1) / (M + S - 1) (Huang et al. 2019, section 2.3). Blocks sleep instead of computing, so that ranks
do not need cores. Aim: within 15 %.
python -m benchmarks.pipeline_bubble [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.awake_cores import awake_cores
from benchmarks.record import write
from paragan.core.dist import World
from paragan.extensions.large_models.parallel.pipeline import Options, Strategy
from paragan.layers.blocks import run_blocks
from tests.distributed.pool import Pool

FORWARD_S, BACKWARD_S = 0.06, 0.12  # of a block, for one micro-batch
BLOCKS, ROWS = 4, 16
CASES = [(2, 1), (2, 2), (2, 4), (2, 8), (4, 2), (4, 4), (4, 8)]


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        time.sleep(FORWARD_S)
        return h.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        time.sleep(BACKWARD_S)
        return grad


class _Block(nn.Linear):
    """A layer that sleeps."""

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return _Sleep.apply(super().forward(h))


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(4, 4) for _ in range(BLOCKS))

    def forward(self, h: Tensor) -> Tensor:
        return run_blocks(self.blocks, h)


def turn_seconds(world: World, micro_batches: int, repetitions: int) -> list[float]:
    """Seconds of forward and backward, for each repetition."""
    net = Strategy(Options(micro_batches=micro_batches)).prepare(_Net, world)
    h = torch.ones(ROWS // world.size, 4, requires_grad=True)
    found = []
    for _ in range(repetitions + 1):
        world.barrier()
        start = time.perf_counter()
        net(h).sum().backward()
        world.barrier()
        found.append(time.perf_counter() - start)
    return found[1:]  # the first sends shapes


def one_process(world: World, micro_batches: int, repetitions: int) -> list[float]:
    """Seconds of the same micro-batches in one process, for each repetition."""
    net = _Net()
    h = torch.ones(ROWS // micro_batches, 4, requires_grad=True)
    found = []
    for _ in range(repetitions):
        start = time.perf_counter()
        torch.cat([net(h) for _ in range(micro_batches)]).sum().backward()
        found.append(time.perf_counter() - start)
    return found


def measure(pool: Pool, micro_batches: int, repetitions: int) -> dict[str, Any]:
    """The bubble measured and expected."""
    about = {"micro_batches": micro_batches, "repetitions": repetitions}
    taken = statistics.median(pool.run("benchmarks.pipeline_bubble:turn_seconds", **about)[0])
    expected = (pool.world - 1) / (micro_batches + pool.world - 1)
    alone = statistics.median(pool.run("benchmarks.pipeline_bubble:one_process", **about)[0])  # as long as they sleep
    found = 1 - alone / pool.world / taken
    return {
        "stages": pool.world,
        "micro_batches": micro_batches,
        "seconds": round(taken, 4),
        "bubble": round(found, 4),
        "expected": round(expected, 4),
        "error": round(found / expected - 1, 4),
    }


def main(repetitions: int = 9) -> None:
    rows = []
    for stages in sorted({stages for stages, _ in CASES}):
        with closing(Pool(stages)) as pool, awake_cores():
            for micro_batches in (m for s, m in CASES if s == stages):
                rows.append(measure(pool, micro_batches, repetitions))
                print(rows[-1], flush=True)
    write("pipeline-bubble", {"forward_s": FORWARD_S, "backward_s": BACKWARD_S, "blocks": BLOCKS, "rows": rows})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
