"""Share of time in which the ranks of a pipeline wait, with equal stages whose blocks sleep.

A forward and backward of one network, with M micro-batches on S ranks, in wall-clock seconds, against
(S - 1) / (M + S - 1) (Huang et al. 2019, section 2.3). Blocks sleep instead of computing, so that ranks
do not need cores. With a split backward, half of the backward is for weights, and ranks do not wait for
it: 2 (S - 1) / (3 M + 2 (S - 1)). 1F1B waits as long as GPipe. Aim: within 15 %.
python -m benchmarks.pipeline_bubble [repetitions] [schedule]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks.awake_cores import awake_cores
from benchmarks.record import write
from paragan.core.dist import World
from paragan.core.types import Rows
from paragan.game.network import CalledNetwork
from paragan.layers import split_backward
from paragan.layers.blocks import run_blocks
from paragan.layers.operator_call import OperatorCall
from paragan.parallel._alternating_passes import run_alternating
from paragan.parallel._backward import backward
from paragan.parallel._network_parts import end_round, pipelined
from paragan.parallel.pipeline import Options, Strategy
from tests.distributed.pool import Pool

FORWARD_S, BACKWARD_S = 0.06, 0.12  # of a block, for one micro-batch
BLOCKS, ROWS = 4, 16
_WEIGHT_GRADIENTS = split_backward._weight_gradients
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "gpipe": {},
    "zero-bubble": {"split_backward": True},
    "1f1b": {"schedule": "1f1b"},
}
CASES = [(2, 1), (2, 2), (2, 4), (2, 8), (4, 2), (4, 4), (4, 8)]


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        time.sleep(FORWARD_S)
        return h.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        time.sleep(ctx.backward_s)
        return grad, None


class _Block(nn.Linear):
    """A layer that sleeps. backward_s: with the gradient of its input."""

    def __init__(self, backward_s: float) -> None:
        super().__init__(4, 4)
        self.backward_s = backward_s

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return _Sleep.apply(super().forward(h), self.backward_s)


class _Net(nn.Module):
    def __init__(self, backward_s: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(backward_s) for _ in range(BLOCKS))

    def forward(self, h: Tensor) -> Tensor:
        return run_blocks(self.blocks, h)


def turn_seconds(world: World, options: dict[str, Any], repetitions: int) -> list[float]:
    """Seconds of forward and backward, for each repetition."""
    is_split = bool(options.get("split_backward"))
    strategy = Strategy(Options(**options))
    net = strategy.prepare(lambda: _Net(BACKWARD_S / 2 if is_split else BACKWARD_S), world)
    split = pipelined(net).split
    h = torch.ones(ROWS // world.size, 4, requires_grad=True)
    found = []
    with mock.patch.object(split_backward, "_weight_gradients", _slow_weight_gradients):
        for _ in range(repetitions + 1):
            world.barrier()
            start = time.perf_counter()
            if options.get("schedule") == "1f1b":
                rows = Rows(0, world.rank * len(h), len(h), ROWS)
                parts = [h[part.within(rows)] for part in rows.parts(options["micro_batches"])]
                run_alternating([partial(_pass, net, part) for part in parts], end_round([CalledNetwork(net)]))
            else:
                _pass(net, h)
            if split is not None:
                split.finish()
            world.barrier()
            found.append(time.perf_counter() - start)
    return found[1:]  # the first sends shapes


def _pass(net: nn.Module, h: Tensor) -> None:
    backward([net(h).sum()], [None], 1)


def _slow_weight_gradients(call: OperatorCall, grad: Tensor) -> Any:
    time.sleep(BACKWARD_S / 2)
    return _WEIGHT_GRADIENTS(call, grad)


def one_process(world: World, micro_batches: int, repetitions: int) -> list[float]:
    """Seconds of the same micro-batches in one process, for each repetition."""
    net = _Net(BACKWARD_S)
    h = torch.ones(ROWS // micro_batches, 4, requires_grad=True)
    found = []
    for _ in range(repetitions):
        start = time.perf_counter()
        torch.cat([net(h) for _ in range(micro_batches)]).sum().backward()
        found.append(time.perf_counter() - start)
    return found


def measure(pool: Pool, micro_batches: int, schedule: Mapping[str, Any], repetitions: int) -> dict[str, Any]:
    """The bubble measured and expected."""
    options = {"micro_batches": micro_batches, **schedule}
    is_split = "split_backward" in schedule
    case = "benchmarks.pipeline_bubble:turn_seconds"
    taken = statistics.median(pool.run(case, options=options, repetitions=repetitions)[0])
    waits = (pool.world - 1) * (FORWARD_S + (BACKWARD_S / 2 if is_split else BACKWARD_S))
    expected = waits / (micro_batches * (FORWARD_S + BACKWARD_S) + waits)
    about = {"micro_batches": micro_batches, "repetitions": repetitions}
    alone = statistics.median(pool.run("benchmarks.pipeline_bubble:one_process", **about)[0])  # as long as they sleep
    found = 1 - alone / pool.world / taken
    return {
        "stages": pool.world,
        "micro_batches": micro_batches,
        **schedule,
        "seconds": round(taken, 4),
        "bubble": round(found, 4),
        "expected": round(expected, 4),
        "error": round(found / expected - 1, 4),
    }


def main(repetitions: int = 9, schedules: Sequence[str] = tuple(SCHEDULES), name: str = "pipeline-bubble") -> None:
    rows = []
    for stages in sorted({stages for stages, _ in CASES}):
        with closing(Pool(stages)) as pool, awake_cores():
            for micro_batches in (m for s, m in CASES if s == stages):
                for schedule in schedules:
                    rows.append(measure(pool, micro_batches, SCHEDULES[schedule], repetitions))
                    print(rows[-1], flush=True)
    write(name, {"forward_s": FORWARD_S, "backward_s": BACKWARD_S, "blocks": BLOCKS, "rows": rows})


if __name__ == "__main__":
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    if len(sys.argv) > 2:
        main(repetitions, sys.argv[2:3], f"pipeline-bubble-{sys.argv[2]}")
    else:
        main(repetitions)
