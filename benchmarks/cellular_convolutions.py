"""How fast grids of DCGAN and SNGAN train stacked, against one cell after another: CPU seconds, pair by pair.

    python -m benchmarks.cellular_convolutions [--pairs 15]

No aim: on a CPU a grouped convolution does the same work as one convolution per cell; `grid.executor=auto` chooses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.paired_timing import compare, keep
from paragan.config import read_recipe
from paragan.extensions.grid.build import trainer as grid

_WORDS = (
    *("augment=null", "penalties=[]", "evaluation.features=null", "train.threads=1", "grid.fitness.num_images=8"),
    *("scheme=synchronous", "every.sample_kimg=0"),
)
_DCGAN = "model={{name: dcgan, width: {}, latent: 16, d_norm: {}}}"
_SNGAN = "model={{name: sngan, width: {}, latent: 16}}"
# by name: steps per timed call, words
CASES: dict[str, tuple[int, tuple[str, ...]]] = {
    "DCGAN, batch norm, width 16 at 16 px, batch 64, 2x2": (
        *(1, ("data.size=16", "train.batch=64", "grid.shape=2x2", _DCGAN.format(16, "batch"))),
    ),
    "DCGAN, batch norm, width 4 at 8 px, batch 8, 4x4": (
        *(4, ("data.size=8", "train.batch=8", "grid.shape=4x4", _DCGAN.format(4, "batch"))),
    ),
    "DCGAN, spectral norm, width 4 at 8 px, batch 8, 4x4": (
        *(4, ("data.size=8", "train.batch=8", "grid.shape=4x4", _DCGAN.format(4, "spectral"))),
    ),
    "SNGAN, width 16 at 16 px, batch 32, 2x2": (
        *(1, ("data.size=16", "train.batch=32", "grid.shape=2x2", _SNGAN.format(16))),
    ),
    "SNGAN, width 4 at 8 px, batch 8, 4x4": (
        *(3, ("data.size=8", "train.batch=8", "grid.shape=4x4", _SNGAN.format(4))),
    ),
}


def steps(num: int, words: Sequence[str], executor: str) -> Callable[[], object]:
    """A call that trains all cells of a grid for so many steps."""
    config = read_recipe("digits", (*_WORDS, *words, f"grid.executor={executor}"))
    found = grid.evolution(config, Path(mkdtemp()), print, lambda: False, reading=True).population
    return lambda: found.executor(found.cells, num, lambda cell, batch: 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    results = {}
    for name, (num, words) in CASES.items():
        loop, stacked = (steps(num, words, executor) for executor in ("loop", "stacked"))
        results[f"loop / stacked, {name}"] = compare(loop, stacked, pairs)
    keep("cellular-convolutions", results, "digits, scheme synchronous, no penalties; one thread")


if __name__ == "__main__":
    main()
