"""What of the data each cell of a grid sees."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from paragan.coevolution.options import CellOptions, GridOptions
from paragan.core.errors import ConfigError
from paragan.core.protocols import Source
from paragan.loading import subset
from paragan.loading.order import Indices
from paragan.loading.subset import SubsetSource

_MAX_NAMES = 20  # class names in a message


class Diets:
    """seed: the run's; what a cell sees depends on it, on the options and on the cell's number alone.

    `ConfigError` for classes that the data does not have.
    """

    def __init__(self, options: GridOptions, source: Source, seed: int) -> None:
        self.options, self.source, self.seed = options, source, seed
        self._shares = options.diets
        self._found: dict[int, Source] = {}
        for own in options.cells:
            self._numbers(own)

    def of(self, cell: int) -> Source:
        """The source itself where nothing is left out, else rows of it, always the same object."""
        if cell not in self._found:
            self._found[cell] = self._made(cell)
        return self._found[cell]

    def classes(self, cell: int) -> tuple[int, ...]:
        """Those that it sees, by number; none where that is all of them."""
        return self._numbers(self.options.own(cell))

    def _made(self, cell: int) -> Source:
        share, classes, num = self._shares[cell], self.classes(cell), len(self.source)
        if share == 1 and not classes:
            return self.source
        if share == 1:
            rows = np.arange(num)
        elif self.options.overlap:
            rows = subset.random_rows(num, share, self.seed, cell)
        else:
            rows = subset.disjoint_rows(num, self._shares, self.seed, cell)
        kept = rows[np.isin(self._labels[rows], classes)] if classes else rows
        if not len(kept):
            found = f"{self._key(self.options.own(cell))}: found none of these among the images of cell {cell}"
            raise ConfigError(f"{found} ({len(rows)}); {'raise its diet' if share < 1 else 'name others'}")
        return SubsetSource(self.source, kept)

    @cached_property
    def _labels(self) -> Indices:
        return subset.read_labels(self.source)

    def _numbers(self, own: CellOptions) -> tuple[int, ...]:
        return tuple(sorted({self._number(own, label) for label in own.classes or ()}))

    def _number(self, own: CellOptions, label: int | str) -> int:
        """The class of this name or number."""
        names = self.source.class_names
        if label in names:
            return names.index(str(label))
        if isinstance(label, int) and label < len(names):
            return label
        listed = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
        expected = f"one of {listed} or a number below {len(names)}" if names else "none: this data has no classes"
        raise ConfigError(f"{self._key(own)}: found {label!r}, expected {expected}")

    def _key(self, own: CellOptions) -> str:
        return f"grid.cells.{self.options.cells.index(own)}.classes"
