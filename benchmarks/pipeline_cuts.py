"""Balanced cuts of a pipeline against equal counts of blocks, on BigGAN at 128 px and two ranks.

Wall-clock seconds of forward and backward of each network, interleaved pairs, and the ratio that the
estimated work of the blocks predicts.
python -m benchmarks.pipeline_cuts [pairs] [width]
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from benchmarks.awake_cores import awake_cores
from benchmarks.paired_timing import ratio_of
from benchmarks.record import write
from paragan.core.dist import World
from paragan.core.network_factory import NetworkFactory
from paragan.extensions.large_models.parallel.pipeline import Options, Strategy
from paragan.extensions.large_models.pipeline_cuts import NEARLY_EQUAL, BlockCost, balanced_cuts, block_costs
from paragan.layers.init import initialise
from paragan.models import biggan
from tests.distributed.pool import Pool

SIDE, CLASSES, RANKS, MICRO_BATCHES, ROWS = 128, 1000, 2, 4, 16
_KINDS = {"G": biggan.Generator, "D": biggan.Discriminator}


def _inputs(name: str, net: torch.nn.Module, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (rows, net.latent) if name == "G" else (rows, 3, SIDE, SIDE)
    return torch.randn(shape), torch.randint(CLASSES, (rows,))


def _construct(name: str, width: int) -> torch.nn.Module:
    return _KINDS[name](biggan.Options(width=width), (3, SIDE, SIDE), CLASSES)


def pairs_of_seconds(world: World, name: str, width: int, cuts: list[list[int]], pairs: int) -> list[list[float]]:
    """Seconds of forward and backward with each of two sets of cuts, in turn."""
    nets = []
    for each in cuts:
        strategy = Strategy(Options(micro_batches=MICRO_BATCHES, cuts=tuple(each)))
        make = NetworkFactory(partial(_construct, name, width), partial(initialise, seed=0, stream=name))
        nets.append(strategy.prepare(make, world))
    inputs = _inputs(name, nets[0], ROWS // world.size)
    found = []
    for number in range(pairs + 1):
        order = (0, 1) if number % 2 else (1, 0)
        times = [0.0, 0.0]
        for which in order:
            world.barrier()
            start = time.perf_counter()
            output = nets[which](*inputs)
            (output if name == "G" else output.logits_B).sum().backward()
            world.barrier()
            times[which] = time.perf_counter() - start
        found.append(times)
    return found[1:]


def predicted(found: list[BlockCost], cuts: tuple[int, ...]) -> float:
    """Work of a turn: of all stages for the first micro-batch, and of the longest one for each further one."""
    stages = [sum(one.work for one in found[first:stop]) for first, stop in pairwise((0, *cuts, len(found)))]
    return sum(stages) + (MICRO_BATCHES - 1) * max(stages)


def compare(pool: Pool, name: str, width: int, pairs: int) -> dict[str, Any]:
    """Predicted and measured ratio of one network."""
    with torch.device("meta"):
        net = _construct(name, width)
        inputs = _inputs(name, net, 2)
    found = block_costs(net, inputs)
    equal = tuple(len(found) * number // RANKS for number in range(1, RANKS))
    balanced = balanced_cuts(found, RANKS, NEARLY_EQUAL)
    case = {"name": name, "width": width, "cuts": [list(equal), list(balanced)], "pairs": pairs}
    times = pool.run("benchmarks.pipeline_cuts:pairs_of_seconds", timeout=580, **case)[0]
    measured = ratio_of(times)
    ratio = predicted(found, equal) / predicted(found, balanced)
    return {
        "equal_cuts": equal,
        "balanced_cuts": balanced,
        "measured_seconds": [round(measured.a_seconds, 3), round(measured.b_seconds, 3)],
        "predicted_ratio": round(ratio, 3),
        "measured_ratio": round(measured.median, 3),
        "interval": [round(measured.low, 3), round(measured.high, 3)],
        "error": round(measured.median / ratio - 1, 3),
    }


def main(pairs: int, width: int) -> None:
    rows = {}
    with closing(Pool(RANKS)) as pool, awake_cores() as cores:
        for name in _KINDS:
            rows[name] = compare(pool, name, width, pairs)
            print(name, rows[name], flush=True)
    about = {"ranks": RANKS, "micro_batches": MICRO_BATCHES, "batch": ROWS, "width": width, "cores": cores}
    write("pipeline-cuts-biggan-128", {**about, "pairs": pairs, "networks": rows})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15, int(sys.argv[2]) if len(sys.argv) > 2 else 16)
