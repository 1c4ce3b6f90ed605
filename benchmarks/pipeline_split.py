"""A pipeline with a split backward (zero-bubble) against one without, on BigGAN at 128 px and two ranks.

Wall-clock seconds of forward and backward of each network, interleaved pairs, and the ratio that the
measured times of the blocks predict if half of a backward is for weights.
python -m benchmarks.pipeline_split [pairs] [width]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.awake_cores import awake_cores
from benchmarks.paired_timing import ratio_of
from benchmarks.pipeline_cuts import MICRO_BATCHES, RANKS, ROWS, _construct, _inputs
from benchmarks.record import write
from paragan.core.dist import World
from paragan.core.network_factory import NetworkFactory
from paragan.layers.init import initialise
from paragan.parallel._network_parts import pipelined
from paragan.parallel._pipeline_cuts import BlockCost, balanced_cuts
from paragan.parallel.pipeline import Options, Strategy
from paragan.scaling.pipeline_schedule import ChunkTime, schedule
from tests.distributed.pool import Pool


def pairs_of_seconds(world: World, name: str, width: int, cuts: list[int], pairs: int) -> list[list[float]]:
    """Seconds of forward and backward without and with a split backward, in turn."""
    nets = []
    for is_split in (False, True):
        strategy = Strategy(Options(micro_batches=MICRO_BATCHES, cuts=tuple(cuts), split_backward=is_split))
        make = NetworkFactory(partial(_construct, name, width), partial(initialise, seed=0, stream=name))
        nets.append(strategy.prepare(make, world))
    inputs = _inputs(name, nets[0], ROWS // world.size)
    found = []
    for number in range(pairs + 1):
        times = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            split = pipelined(nets[which]).split
            world.barrier()
            start = time.perf_counter()
            output = nets[which](*inputs)
            (output if name == "G" else output.logits_B).sum().backward()
            if split is not None:
                split.finish()
            world.barrier()
            times[which] = time.perf_counter() - start
        found.append(times)
    return found[1:]  # the first sends shapes


def predicted_seconds(found: Sequence[BlockCost], cuts: Sequence[int], is_split: bool) -> float:
    """Seconds of forward and backward by the times of the blocks."""
    chunks = []
    for rank, (first, stop) in enumerate(pairwise((0, *cuts, len(found)))):
        forward = sum(one.forward_seconds for one in found[first:stop])
        backward = sum(one.seconds for one in found[first:stop]) - forward
        chunks.append(ChunkTime(rank, forward, backward, backward / 2 if is_split else 0.0))
    return max(one.stop_s for one in schedule(chunks, MICRO_BATCHES))


def compare(pool: Pool, name: str, width: int, pairs: int) -> dict[str, Any]:
    """Predicted and measured ratio of one network."""
    by_rank = pool.run("benchmarks.pipeline_cuts:costs", timeout=300, name=name, width=width)
    found = [BlockCost(*max(each)) for each in zip(*by_rank, strict=True)]
    cuts = balanced_cuts(found, RANKS)
    case = {"name": name, "width": width, "cuts": list(cuts), "pairs": pairs}
    times = pool.run("benchmarks.pipeline_split:pairs_of_seconds", timeout=580, **case)[0]
    measured = ratio_of(times)
    expected = [predicted_seconds(found, cuts, is_split) for is_split in (False, True)]
    return {
        "cuts": cuts,
        "measured_seconds": [round(measured.a_seconds, 3), round(measured.b_seconds, 3)],
        "predicted_seconds": [round(seconds, 3) for seconds in expected],
        "predicted_ratio": round(expected[0] / expected[1], 3),
        "measured_ratio": round(measured.median, 3),
        "interval": [round(measured.low, 3), round(measured.high, 3)],
    }


def main(pairs: int, width: int) -> None:
    rows = {}
    with closing(Pool(RANKS)) as pool, awake_cores() as cores:
        for name in ("G", "D"):
            rows[name] = compare(pool, name, width, pairs)
            print(name, rows[name], flush=True)
    about = {"ranks": RANKS, "micro_batches": MICRO_BATCHES, "batch": ROWS, "width": width, "cores": cores}
    write("pipeline-split-biggan-128", {**about, "pairs": pairs, "networks": rows})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15, int(sys.argv[2]) if len(sys.argv) > 2 else 16)
