"""The parts of an iteration of cellular training, each against what the upstream-style loop does in its place.

    python -m benchmarks.cellular_components DATA_FOLDER [--pairs 21]

Aims: a step of training 1.3 times less CPU, all-against-all fitness at 4x4 with 250 samples 8 times (forward passes
only, pair by pair), a batch of images 15 times, mixtures 4 times.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import torch

from benchmarks.cellular_comparison import EQUAL, Line, images, keep, population, upstream
from benchmarks.cellular_upstream_images import Images, forever, loader
from benchmarks.paired_timing import Ratio, compare
from paragan.core.types import Side
from paragan.extensions.grid.executors.choice import train_in_loop

STEPS = 20  # per timed call
SUPPLIED = 50


def step(data: Path, pairs: int) -> Ratio:
    """Steps of one cell, images at hand: G on every batch, D on every second, rates mutated by theirs each time."""
    theirs, ours = upstream(data, "1x1", STEPS).cells[0], population(data, "1x1", STEPS).cells[0]
    ready = list(islice(ours.batches, STEPS))
    theirs._loader = [batch.image for batch in ready]  # type: ignore[assignment]
    ours.batches = cycle(ready)  # type: ignore[assignment]
    executor, g, d = train_in_loop, theirs.g, theirs.d
    return compare(lambda: theirs._train(g, d), lambda: executor([ours], STEPS, lambda cell, batch: 0), pairs)


def fitness(data: Path, pairs: int, forward_only: bool) -> Ratio:
    """Of all players in every neighbourhood of 4x4, 250 samples. forward_only: theirs without gradients prepared."""
    theirs = upstream(data, "4x4", 1, num_fitness=250)
    ours = population(data, "4x4", 1, ("grid.fitness.num_images=250",))
    reals = [cell._fitness_samples() for cell in theirs.cells]
    groups = [cell._gathered(theirs.cells) for cell in theirs.cells]

    def pair_by_pair() -> None:
        with torch.set_grad_enabled(not forward_only):
            for cell, real_FP, (gs, ds) in zip(theirs.cells, reals, groups, strict=True):
                for g in gs:
                    cell._g_fitness(g, ds)
                for d in ds:
                    cell._d_fitness(d, gs, real_FP)

    near = ours._gather()

    def once() -> None:
        evaluator = ours.make_evaluator(0)
        evaluator.precompute_logits((g[Side.G], d[Side.D]) for group in near.values() for g in group for d in group)
        for cell in ours.cells:
            ours._fitness(evaluator, near[cell.number], near[cell.number], cell.number)

    return compare(pair_by_pair, once, pairs)


def supply(data: Path, pairs: int) -> Ratio:
    """Batches of 100 in a shuffled order."""
    theirs = forever(loader(Images(images(data)), 100, 0))
    ours = population(data, "1x1", 1).cells[0].batches
    return compare(_drawn(theirs), _drawn(ours), pairs)


def mixture(data: Path, pairs: int) -> Ratio:
    """One step of every cell of 2x2: making, judging and weighing 1,000 images."""
    theirs, ours = upstream(data, "2x2", 1), population(data, "2x2", 1)
    groups = [cell._gathered(theirs.cells)[0] for cell in theirs.cells]
    ours.evolve()  # cells have moved since they were gathered, so that old and new ones are judged
    near = ours._gather(1)
    trained = {cell.number: cell.snapshot(2) for cell in ours.cells}
    for cell in ours.cells:
        cell.centre = trained[cell.number]

    def once() -> None:
        pools: dict = {}
        for cell in ours.cells:
            ours._mix(cell, [centre[Side.G] for centre in near[cell.number]], 1, pools)

    return compare(
        lambda: [cell._mix([*gs[:-1], cell.g]) for cell, gs in zip(theirs.cells, groups, strict=True)], once, pairs
    )


def _drawn(batches) -> Callable[[], object]:
    return lambda: [next(batches) for _ in range(SUPPLIED)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=21)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data, pairs = arguments.data, arguments.pairs
    lines = {
        "S1 step of training": Line(step(data, pairs), 1.3),
        "S2 fitness of 4x4, forward only": Line(fitness(data, pairs, forward_only=True), 8.0),
        "S2 fitness of 4x4, as upstream has it": Line(fitness(data, pairs, forward_only=False)),
        "S3 batch of images": Line(supply(data, pairs), 15.0),
        "S4 mixtures of 2x2": Line(mixture(data, pairs), 4.0),
    }
    keep("parts", lines, EQUAL)


if __name__ == "__main__":
    main()
