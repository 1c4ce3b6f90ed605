"""Training data of each cell of a grid: all of it, a share, or some classes; and their prior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from paragan.coevolution.options import CellOptions, GridOptions
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.game.prior import Prior
from paragan.loading import subset
from paragan.loading.order import Indices
from paragan.loading.subset import SubsetSource

_MAX_NAMES = 20  # class names in a message


class Diets:
    """Training data by cell; depends only on the run's seed, the options and the cell number.

    Raises `ConfigError` if the data does not have one of the classes.
    """

    def __init__(self, options: GridOptions, source: Source, seed: int) -> None:
        self.options = options
        self.source = source
        self.seed = seed
        self._shares = options.diets
        self._sources: dict[int, Source] = {}
        for own in options.cells:
            self._numbers(own)

    def of(self, cell: int) -> Source:
        """Return the data of a cell: the source, or a subset of its rows made once."""
        if cell not in self._sources:
            self._sources[cell] = self._make(cell)
        return self._sources[cell]

    def classes(self, cell: int) -> tuple[int, ...]:
        """Return the numbers of the classes of a cell; empty for all classes."""
        return self._numbers(self.options.of_cell(cell))

    def _make(self, cell: int) -> Source:
        share = self._shares[cell]
        classes = self.classes(cell)
        num = len(self.source)
        if share == 1 and not classes:
            return self.source
        if share == 1:
            rows = np.arange(num)
        elif self.options.overlap:
            rows = subset.random_rows(num, share, self.seed, cell)
        else:
            rows = subset.disjoint_rows(num, self._shares, self.seed, cell)
        selected = rows[np.isin(self._labels[rows], classes)] if classes else rows
        if not len(selected):
            fix = "increase its diet" if share < 1 else "name other classes"
            key = self._key(self.options.of_cell(cell))
            raise ConfigError(f"{key}: cell {cell} has no image of these classes; {fix}")
        return SubsetSource(self.source, selected)

    @cached_property
    def _labels(self) -> Indices:
        return subset.read_labels(self.source)

    def _numbers(self, own: CellOptions) -> tuple[int, ...]:
        return tuple(sorted({self._number(own, label) for label in own.classes or ()}))

    def _number(self, own: CellOptions, label: int | str) -> int:
        """Return the number of a class given by name or number."""
        names = self.source.class_names
        if label in names:
            return names.index(str(label))
        if isinstance(label, int) and label < len(names):
            return label
        listed = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
        if not names:
            raise ConfigError(f"{self._key(own)}: this data has no classes; remove the key")
        hint = f"use one of {listed} or a number below {len(names)}"
        raise ConfigError(f"{self._key(own)}: the data has no class {label!r}; {hint}")

    def _key(self, own: CellOptions) -> str:
        return f"grid.cells.{self.options.cells.index(own)}.classes"


@dataclass(frozen=True)
class ClassSubsetPrior(Prior):
    """Prior with labels drawn uniformly from a subset of the classes.

    Fakes of other classes would teach D that these labels are fake. classes: their numbers, at
    least one.
    """

    classes: tuple[int, ...] = ()

    @classmethod
    def of(cls, prior: Prior, classes: tuple[int, ...]) -> Prior:
        """Restrict a prior to these classes; an unconditional prior is returned unchanged."""
        if not prior.num_classes:
            return prior
        return cls(**vars(prior), classes=classes)

    def draw_on_cpu(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        z, _ = super().draw_on_cpu(stream, rows)
        indices = rng.integers(self.seed, f"{stream}/y", rows, len(self.classes))
        return z, torch.tensor(self.classes)[indices]
