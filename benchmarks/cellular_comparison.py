"""Both sides of a speed comparison of cellular training, at equal settings, and whether a figure is met.

Equal are: networks (64-256-256-784, 784-256-256-1), batch, steps of G and of D per batch, fitness samples, images and
classifier that mixtures are scored by, neighbourhoods, tournament, elitist replacement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from torch import Tensor

from benchmarks.cellular_upstream import Upstream
from benchmarks.cellular_upstream_cell import Config
from benchmarks.paired_timing import Ratio
from benchmarks.record import write
from paragan.config import read_recipe
from paragan.datasets import mnist
from paragan.extensions.grid.build import trainer as build_cells
from paragan.extensions.grid.population import Population
from paragan.features import mnist as mnist_features

EQUAL = (
    "real MNIST, networks 64-256-256-784 and 784-256-256-1, batch 100, D trained on every second batch, 1,000 fitness "
    "samples, mixtures of 1,000 images scored by the MNIST CNN; no workers, one thread"
)
WITHIN = 0.05  # of a figure has the interval to end


@dataclass(frozen=True)
class Line:
    """One comparison. ratio: theirs over ours. least: the required ratio, if any."""

    ratio: Ratio
    least: float | None = None

    @property
    def met(self) -> bool | None:
        if self.least is None:
            return None
        return self.ratio.median >= self.least and self.ratio.low >= self.least * (1 - WITHIN)

    def __str__(self) -> str:
        r = self.ratio
        required = "" if self.least is None else f"; required {self.least:g}: {'met' if self.met else 'NOT met'}"
        return f"{r.median:.3f} [{r.low:.3f}, {r.high:.3f}] ({r.a_seconds:.4f} s / {r.b_seconds:.4f} s){required}"


def keep(name: str, lines: Mapping[str, Line], note: str, **more: Any) -> None:
    """Print, and write to `results/`."""
    for label, line in lines.items():
        print(f"{label}: {line}", flush=True)
    ratios = {label: {**asdict(line.ratio), "required": line.least, "met": line.met} for label, line in lines.items()}
    write(f"cellular-{name}", {"threads": 1, "note": note, "ratios": ratios, **more})


def grid(shape: str, batches: int, words: Sequence[str]) -> Population:
    """All cells of a grid in this process, as the recipe has it but for these words."""
    config = read_recipe("cellular-mnist", (*words, f"grid.shape={shape}", f"grid.batches={batches}"))
    return build_cells.evolution(config, Path(mkdtemp()), print, lambda: False, reading=True).population


def mnist_words(data: Path) -> tuple[str, ...]:
    return (f"data.path={data}",)


def population(data: Path, shape: str, batches: int, words: Sequence[str] = ()) -> Population:
    return grid(shape, batches, (*mnist_words(data), *words))


def upstream(data: Path, shape: str, batches: int, **changes: Any) -> Upstream:
    rows, columns = map(int, shape.split("x"))
    return Upstream(Config(rows, columns, batches, **changes), images(data), _extractor())


@cache
def images(data: Path) -> Tensor:
    """(N, 1, 28, 28) uint8, those to train with."""
    found = mnist.source(mnist.Options(path=str(data)), "train")
    return found.fetch(torch.arange(len(found)).numpy())["image"]


@cache
def _extractor() -> torch.nn.Module:
    return mnist_features.EXTRACTOR.network()
