"""Whole iterations of cellular training on real MNIST against the upstream-style loop: CPU seconds, pair by pair.

    python -m benchmarks.cellular_speed DATA_FOLDER [--pairs 15] [--only 2x2-100 3x3-50 2x2-600]

Aims: at 2x2 with 100 batches 3 times less, at 3x3 with 50 batches 4.5 times; at the paper's 600 batches, where training
is all that is left, 2.3 times in float32. DATA_FOLDER holds the MNIST idx files, the classifier is next to it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.cellular_comparison import EQUAL, Line, keep, population, upstream
from benchmarks.cellular_upstream import gflops
from benchmarks.paired_timing import compare

# by name: shape, batches, how many times less is required
CASES = {"2x2-100": ("2x2", 100, 3.0), "3x3-50": ("3x3", 50, 4.5), "2x2-600": ("2x2", 600, 2.3)}


def whole(data: Path, shape: str, batches: int, pairs: int, words: Sequence[str] = ()) -> tuple[Line, dict[str, dict]]:
    """Theirs over ours, and the CPU seconds of either by routine, per cell and iteration (medians)."""
    theirs, ours = upstream(data, shape, batches), population(data, shape, batches, words)
    spent: dict[str, list[Mapping[str, float]]] = {"upstream-style": [], "paragan": []}
    ratio = compare(
        lambda: spent["upstream-style"].append(theirs.iterate()),
        lambda: spent["paragan"].append(ours.evolve()[0].cpu_s),
        pairs,
        warm_up=1,
    )
    cells = len(ours.cells)
    by_routine = {
        side: {name: round(statistics.median(one[name] for one in found[1:]) / cells, 5) for name in found[0]}
        for side, found in spent.items()
    }
    return Line(ratio), by_routine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only:
        shape, batches, least = CASES[name]
        line, parts = whole(arguments.data, shape, batches, arguments.pairs)
        label = f"upstream-style / paragan, {shape}, {batches} batches"
        more = {"gflops": round(gflops()), "cpu_s_per_cell": parts}
        keep(f"iteration-{name}", {label: Line(line.ratio, least)}, EQUAL, **more)


if __name__ == "__main__":
    main()
