"""Training data of each cell of a grid: all of it, a share, or some classes; and their prior."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from paragan.config.grid_options import GridOptions
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.printable import join_some
from paragan.core.source import Source
from paragan.game.prior import Prior
from paragan.loading import subset
from paragan.loading.order import Indices, Order
from paragan.loading.subset import SubsetSource

_MAX_NAMES = 20  # class names in a message


def random_rows(num: int, share: float, seed: int, cell: int) -> Indices:
    """Draw a sorted random share of `num` rows, at least one, for one cell; the rows of cells may overlap.

    Source: J. Toutouh et al., "Data dieting in GAN training", 2020.
    """
    count = max(1, int(num * share))
    return np.sort(Order(num, rng.key(seed, "diet", cell)).at(np.arange(count)))


class DataShares:
    """Training data by cell; depends only on the run's seed, the options and the cell number.

    Raises `ConfigError` if the data does not have one of the classes.
    """

    def __init__(self, options: GridOptions, source: Source, seed: int) -> None:
        self.options = options
        self.source = source
        self.seed = seed
        self._shares = options.data_shares
        self._sources: dict[int, Source] = {}
        self._classes: dict[int, tuple[int, ...]] = {}
        for spec_index, cells in enumerate(options.cells):
            classes = {self._class_number(label, spec_index) for label in cells.classes or ()}
            self._classes |= dict.fromkeys(cells.at, tuple(sorted(classes)))

    def of(self, cell: int) -> Source:
        """Return the data of a cell: the source, or a subset of its rows made once."""
        if cell not in self._sources:
            self._sources[cell] = self._make_source(cell)
        return self._sources[cell]

    def classes(self, cell: int) -> tuple[int, ...]:
        """Return the numbers of the classes of a cell; empty for all classes."""
        return self._classes.get(cell, ())

    def _make_source(self, cell: int) -> Source:
        share = self._shares[cell]
        classes = self.classes(cell)
        if share == 1 and not classes:
            return self.source
        num_rows = len(self.source)
        rows = np.arange(num_rows) if share == 1 else random_rows(num_rows, share, self.seed, cell)
        if classes:
            rows = rows[np.isin(self._labels[rows], classes)]
        if len(rows) == 0:
            spec_index = self.options.cells.index(self.options.of_cell(cell))
            fix = "increase its diet, its share of the images" if share < 1 else "name other classes"
            raise ConfigError(f"grid.cells.{spec_index}.classes: cell {cell} has no image of these classes; {fix}")
        return SubsetSource(self.source, rows)

    @cached_property
    def _labels(self) -> Indices:
        return subset.read_labels(self.source)

    def _class_number(self, label: int | str, spec_index: int) -> int:
        """Return the number of a class that an item of `grid.cells` gives by name or number."""
        names = self.source.class_names
        if label in names:
            return names.index(str(label))
        if isinstance(label, int) and label < len(names):
            return label
        key = f"grid.cells.{spec_index}.classes"
        if not names:
            raise ConfigError(f"{key}: this data has no classes; remove the key")
        hint = f"use one of {join_some(names, _MAX_NAMES)} or a number below {len(names)}"
        raise ConfigError(f"{key}: the data has no class {label!r}; {hint}")


def with_classes(prior: Prior, classes: tuple[int, ...]) -> Prior:
    """Return a prior that draws labels of these classes alone: D would learn that labels of others are fake.

    classes: at least one. An unconditional prior is unchanged.
    """
    sizes = prior.class_sizes or (1,) * prior.num_classes
    return replace(prior, class_sizes=tuple(size * (label in classes) for label, size in enumerate(sizes)))
