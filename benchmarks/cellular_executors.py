"""Which executor is the fastest for a grid's networks, and whether `auto` finds it: CPU seconds, pair by pair.

    python -m benchmarks.cellular_executors DATA_FOLDER [--pairs 21]

Aims: toy networks (128 wide at most) at 4x4 stacked 1.5 times as fast as one after the other; `auto` nowhere slower
than 0.95 of the best.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.cellular_comparison import Line, grid, keep, mnist_words
from benchmarks.paired_timing import compare
from paragan.extensions.grid.population import Population

_TOY_WIDTHS = ("model.g_widths=[128, 128]", "model.d_widths=[128, 128]")
_TOY = ("data={name: digits, size: 8}", "evaluation.features=null", *_TOY_WIDTHS)
STEPS = {"2x2": 60, "4x4": 16, "8x8": 6}  # per timed call
_TOY_STEPS = 80


def cases(data: Path) -> dict[str, tuple[str, int, tuple[str, ...]]]:
    """By name: shape, steps per timed call, words."""
    paper = {f"MNIST networks, {shape}": (shape, num, mnist_words(data)) for shape, num in STEPS.items()}
    return {**paper, "toy networks, 4x4": ("4x4", _TOY_STEPS, _TOY)}


def steps(shape: str, num: int, words: Sequence[str], kind: str) -> tuple[Population, Callable[[], object]]:
    """A grid, and a call that makes so many steps of it."""
    found = grid(shape, num, (*words, f"grid.executor={kind}"))
    return found, lambda: found.executor(found.cells, num, lambda cell, batch: 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=21)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines: dict[str, Line] = {}
    chosen: dict[str, str] = {}
    for name, (shape, num, words) in cases(arguments.data).items():
        work = {kind: steps(shape, num, words, kind) for kind in ("loop", "stacked", "auto")}
        found = compare(work["loop"][1], work["stacked"][1], arguments.pairs)
        lines[f"S7 loop / stacked, {name}"] = Line(found, 1.5 if name.startswith("toy") else None)
        best = "stacked" if found.median > 1 else "loop"
        lines[f"S6 {best} / auto, {name}"] = Line(compare(work[best][1], work["auto"][1], arguments.pairs), 0.95)
        chosen[name] = str(getattr(work["auto"][0].executor, "chosen", None))
    keep("executors", lines, "scheme skipping, every 2; no penalties; one thread", auto=chosen)


if __name__ == "__main__":
    main()
