"""Whether lower precision makes cellular training faster on this machine, and how much of a step its products are.

    python -m benchmarks.cellular_precision DATA_FOLDER [--pairs 15]

Steps of a 2x2 grid as the recipe trains it, against the same steps under bf16 autocast, with torch's float32 matrix
products at `medium`, and against the matrix products of a step alone: nothing that keeps to float32 and these sizes is
faster than that. What a processor without bf16 cannot have is recorded as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.cellular_comparison import EQUAL, Line, keep, population
from benchmarks.paired_timing import compare

STEPS, CELLS, BATCH = 20, 4, 100
G, D = ((64, 256), (256, 256), (256, 784)), ((784, 256), (256, 256), (256, 1))
_BF16 = ("g.precision=bf16", "d.precision=bf16")


def steps(data: Path, *words: str) -> Callable[[], object]:
    """A call that makes STEPS steps of each cell."""
    found = population(data, "2x2", STEPS, words)
    return lambda: found.executor(found.cells, STEPS, lambda cell, batch: 0)


def at(precision: str, work: Callable[[], object]) -> Callable[[], None]:
    """The same with torch's float32 products at that precision."""

    def lowered() -> None:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            work()
        finally:
            torch.set_float32_matmul_precision(before)

    return lowered


def products() -> Callable[[], None]:
    """The matrix products of as many steps, cell after cell, on weights that lie as far apart."""
    g_step = [*_forward(G, BATCH), *_forward(D, BATCH), *_to_input(D, BATCH, first=True)]
    g_step += [*_to_weights(G, BATCH), *_to_input(G, BATCH)]
    d_step = [*_forward(G, BATCH), *_forward(D, 2 * BATCH), *_to_weights(D, 2 * BATCH), *_to_input(D, 2 * BATCH)]
    made = [{s: (torch.randn(s[0], s[1]), torch.randn(s[1], s[2])) for s in {*g_step, *d_step}} for _ in range(CELLS)]

    def work() -> None:
        for number in range(STEPS):
            for held in made:
                for shape in (*g_step, *(d_step if number % 2 == 0 else ())):
                    a, b = held[shape]
                    _ = a @ b

    return work


Shapes = Iterator[tuple[int, int, int]]


def _forward(net: tuple, rows: int) -> Shapes:
    return ((rows, a, b) for a, b in net)


def _to_weights(net: tuple, rows: int) -> Shapes:
    return ((b, rows, a) for a, b in net)


def _to_input(net: tuple, rows: int, first: bool = False) -> Shapes:
    """first: on to the images."""
    return ((rows, b, a) for a, b in net[0 if first else 1 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    plain = steps(arguments.data)
    with_bf16, medium = steps(arguments.data, *_BF16), at("medium", steps(arguments.data))
    lines = {
        "fp32 / bf16 autocast": Line(compare(plain, with_bf16, arguments.pairs)),
        "fp32 / fp32 with medium products": Line(compare(plain, medium, arguments.pairs)),
        "fp32 / its matrix products alone": Line(compare(plain, products(), arguments.pairs)),
    }
    keep("levers", lines, f"{EQUAL}; {STEPS} steps of {CELLS} cells per call")


if __name__ == "__main__":
    main()
