"""Cellular coevolution as the public implementation does it, written from a description: what ours is compared with.

    python -m benchmarks.cellular_upstream DATA_FOLDER --grid 2x2 --batches 100 --iterations 3

prints CPU seconds per cell and iteration by routine. DATA_FOLDER holds the MNIST idx files.

Its habits are kept: a new Adam per batch with a copied state, which also undoes each mutation of the rate; fakes not
detached in D's step; fitness pair by pair with gradients prepared and nothing shared; images through PIL one by one;
the mixture's samples made one by one, against real ones judged anew for each score; whole individuals as text.

Cells run one after another in one process and read their neighbours' newest centres. Where the description leaves
something open it is the cheaper way: no server and no sockets; no labels, no loading of the set again, no images,
log, data base or checkpoint; nothing recorded for gradients of D's weights in G's step or while scoring; the mixture's
generators drawn at once; 100 images at a time to the classifier. Two faults that cost nothing are not copied: all of
upstream's processes draw the same random numbers, and, unless `--transposed` is given, its cells read the neighbours of
the transposed cell (which makes a difference from 3x3 on).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import record
from benchmarks.cellular_upstream_cell import Cell, Config
from benchmarks.cellular_upstream_images import Images
from benchmarks.cellular_upstream_score import Scorer
from benchmarks.cellular_upstream_timer import OTHER, ROUTINES, Ledger
from paragan.datasets import mnist
from paragan.features import mnist as mnist_features


class Upstream:
    """A grid of cells. images_u8: (N, 1, H, W) uint8, grey. extractor: images in [-1, 1] to (features, logits).

    clock: `time.thread_time` where other threads of this process work meanwhile. Torch's threads are the caller's
    business; the global random state is left as it was found.
    """

    def __init__(
        self,
        config: Config,
        images_u8: Tensor,
        extractor: Callable[[Tensor], tuple[Tensor, Tensor]],
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._ledger = clock, Ledger(clock)
        images = Images(images_u8)
        scorer = Scorer(images, extractor, config.num_scored)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.cells = [
                Cell(config, number, neighbours(number, config), images, scorer, self._ledger)
                for number in range(config.rows * config.columns)
            ]
            self._random = torch.get_rng_state()

    def iterate(self) -> Mapping[str, float]:
        """One iteration of every cell. CPU seconds by routine (`ROUTINES`), summed over the cells."""
        before = dict(self._ledger.seconds)
        with torch.random.fork_rng(devices=[]), self._ledger.routine(OTHER):
            torch.set_rng_state(self._random)
            for cell in self.cells:
                cell.iterate(self.cells)
            self._random = torch.get_rng_state()
        return {name: seconds - before[name] for name, seconds in self._ledger.seconds.items()}


def neighbours(number: int, config: Config) -> list[int]:
    """Neighbours of a cell on a torus, counted row by row: N, S, W, E, without duplicates and without the cell.

    `ValueError` for a transposed grid that is not square.
    """
    rows, columns = config.rows, config.columns
    row, column = divmod(number, columns)
    if config.transposed:
        if rows != columns:
            raise ValueError(f"a transposed grid must be square, not {rows}x{columns}")
        row, column = column, row
    around = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
    found = dict.fromkeys(r % rows * columns + c % columns for r, c in around)
    return [other for other in found if other != number]


def gflops(size: int = 1024, calls: int = 10) -> float:
    """1e9 operations of a float32 matrix product per CPU second, the best of a few: how fast this machine is."""
    a = torch.randn(size, size)
    seconds = []
    for _ in range(calls):
        began = time.process_time()
        a @ a
        seconds.append(time.process_time() - began)
    return 2 * size**3 / min(seconds) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--grid", default="2x2")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--mustangs", action="store_true")
    parser.add_argument("--no-codec", action="store_true")
    parser.add_argument("--transposed", action="store_true", help="read the neighbours of the transposed cell")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, columns = map(int, arguments.grid.split("x"))
    codec = not arguments.no_codec
    config = Config(
        rows,
        columns,
        arguments.batches,
        loss="mustangs" if arguments.mustangs else "bce",
        codec=codec,
        transposed=arguments.transposed,
    )
    found = mnist.source(mnist.Options(path=str(arguments.data)), "train")
    images_u8 = found.fetch(torch.arange(len(found)).numpy())["image"]
    upstream = Upstream(config, images_u8, mnist_features.EXTRACTOR.network())
    print(f"{record.machine()}, {gflops():.0f} GFLOP per CPU second; CPU seconds per cell and iteration:")
    for _ in range(arguments.iterations):
        spent = {name: seconds / len(upstream.cells) for name, seconds in upstream.iterate().items()}
        parts = ", ".join(f"{name} {spent[name]:.3f}" for name in ROUTINES)
        scores = " ".join(f"{cell.distance:.1f}" for cell in upstream.cells)
        print(f"{sum(spent.values()):.3f}: {parts}; distances {scores}", flush=True)


if __name__ == "__main__":
    main()
