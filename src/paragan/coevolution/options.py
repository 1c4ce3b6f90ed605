"""Settings of a population on a grid. Nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from paragan.core.option_types import Category, Choice, Count, Fraction, Natural, NotNegative, Positive, Range
from paragan.game.options import OptimizerOptions

Share = Annotated[float, Range(above=0, most=1)]

_SHAPE = re.compile(r"([1-9]\d{0,2})x([1-9]\d{0,2})")
_MAX_CELLS = 4096


@dataclass(frozen=True)
class FitnessOptions:
    """What individuals are compared by."""

    num_images: Count = 1000
    """Real images, and as many latents, on which all cells of a generation are compared."""
    of: Literal["mean", "worst", "best"] = "mean"
    """How the losses against the opponents of the neighbourhood become one number."""
    loss: Annotated[Choice, Category("losses")] | None = None
    """Loss of the comparison for all cells, whatever they train with; null: nonsaturating."""


@dataclass(frozen=True)
class RateOptions:
    """How learning rates mutate before a generation."""

    probability: Fraction = 0.5
    """Probability that a player's learning rate mutates."""
    form: Literal["gaussian", "lognormal"] = "gaussian"
    """gaussian: lr + N(0, rate), not below 0 (Lipizzaner); lognormal: lr exp(N(0, rate))."""
    rate: NotNegative = 1e-4
    """Standard deviation of the mutation."""


@dataclass(frozen=True)
class MixtureOptions:
    """The weights with which a neighbourhood's generators make images, evolved by a (1+1)-ES step per generation."""

    sigma: NotNegative = 0.01
    """Standard deviation of the step."""
    num_images: Natural = 1000
    """Images per generator that a mixture is scored by; 0: weights stay equal."""
    ensemble: Natural = 8
    """Most generators of the greedy ensemble over the whole grid after training; 0: no ensemble."""


@dataclass(frozen=True)
class NeighbourhoodChange:
    """From generation `at` on, the neighbourhood is another one."""

    at: Count
    """First generation with this neighbourhood."""
    topology: Literal["torus", "ring"] = "torus"
    """Which cells are neighbours."""
    radius: Count = 1
    """Distance up to which cells are neighbours."""
    edges: tuple[tuple[Natural, Natural], ...] | None = None
    """Pairs [a, b] of cells that read each other, instead of a topology."""


@dataclass(frozen=True)
class CellPlayerOptions:
    """A cell's optimiser, or only its learning rate."""

    optimizer: OptimizerOptions | None = None
    """Optimiser of these cells, whole, instead of the run's."""
    lr: Positive | None = None
    """Initial learning rate of these cells, with the run's optimiser."""

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.lr is not None:
            raise ValueError("found lr beside optimizer, expected it inside: {optimizer: {name: …, lr: …}}")


@dataclass(frozen=True)
class CellOptions:
    """Settings of single cells; what is not given is the run's."""

    at: tuple[Natural, ...]
    """Numbers of the cells, row by row from 0."""
    loss: Annotated[Choice, Category("losses")] | None = None
    """Loss of these cells throughout; none is drawn for them."""
    g: CellPlayerOptions | None = None
    """G's optimiser or learning rate in these cells."""
    d: CellPlayerOptions | None = None
    """D's optimiser or learning rate in these cells."""
    diet: Share | None = None
    """Share of the training images that these cells see."""
    classes: tuple[Natural | str, ...] | None = None
    """Classes of the data, by name or number, that these cells see; null: all."""

    def __post_init__(self) -> None:
        for name, found in (("at", self.at), ("classes", self.classes)):
            if found == ():
                raise ValueError(f"{name}: found an empty list, expected at least one")
            if (twice := _first_duplicate(found or ())) is not None:
                raise ValueError(f"{name}: found {twice} twice, expected each once")


@dataclass(frozen=True)
class GridOptions:
    """A population: one cell for each place of `shape`."""

    shape: str = "3x3"
    """ROWSxCOLUMNS of the grid."""
    topology: Literal["torus", "ring"] = "torus"
    """Which cells are neighbours: on a torus, or on a ring."""
    radius: Count = 1
    """Distance up to which cells are neighbours."""
    edges: tuple[tuple[Natural, Natural], ...] | None = None
    """Pairs [a, b] of cells that read each other, instead of a topology."""
    changes: tuple[NeighbourhoodChange, ...] = ()
    """Other neighbourhoods from given generations on."""
    batches: Count = 600
    """Batches of a generation; the run ends with the generation in which D has seen train.kimg."""
    tournament: Natural = 2
    """Individuals of the neighbourhood of which the fittest is trained; 0: the cell's own."""
    opponents: Literal["selected", "random"] = "selected"
    """Opponents in training: the selected ones, or a random one of the neighbourhood for each batch."""
    replacement: Literal["elitist", "always"] = "elitist"
    """elitist: a trained individual replaces the cell's own only if it is fitter; always: without a comparison."""
    fitness: FitnessOptions = field(default_factory=FitnessOptions)
    """What individuals are compared by."""
    rates: RateOptions = field(default_factory=RateOptions)
    """How learning rates mutate."""
    losses: tuple[Annotated[Choice, Category("losses")], ...] = ()
    """Losses of which one is drawn for each cell (Mustangs); empty: the run's own."""
    drawn: Literal["generation", "batch"] = "generation"
    """How often a loss is drawn."""
    diet: Share = 1.0
    """Share of the training images that a cell sees."""
    overlap: bool = True
    """Whether two cells may see the same image."""
    cells: tuple[CellOptions, ...] = ()
    """Settings of single cells."""
    inherit_optimizer_state: bool = True
    """Whether optimiser state travels with the weights."""
    mixture: MixtureOptions = field(default_factory=MixtureOptions)
    """Weights of the generators of a neighbourhood."""
    executor: Literal["auto", "loop", "stacked", "recorded"] = "auto"
    """How the cells of a process are trained: one after the other, stacked into one program, or recorded on an
    accelerator (not run on a device yet); auto measures.
    """
    age: Natural = 0
    """Generations that a worker may continue without its neighbours' newest individuals; 0: lock-step."""
    heartbeat_s: Positive = 2.0
    """Seconds between a worker's heartbeats."""

    def __post_init__(self) -> None:
        if not _SHAPE.fullmatch(self.shape) or self.num_cells > _MAX_CELLS:
            raise ValueError(f"found the shape {self.shape!r}, expected ROWSxCOLUMNS with at most {_MAX_CELLS} cells")
        self._refuse_edges()
        self._refuse_cells()
        if not self.overlap and sum(self.diets) > 1 + 1e-9:
            found = f"{sum(self.diets):.4g} of the images in all" if self.cells else f"{self.diet:g}"
            most = "1" if self.cells else f"1 / cells = {1 / self.num_cells:.4g}"
            raise ValueError(f"found a diet of {found} without overlap, expected at most {most}")

    def _refuse_edges(self) -> None:
        changed = {f"changes.{number}.edges": change.edges for number, change in enumerate(self.changes)}
        for where, edges in ({"edges": self.edges} | changed).items():
            for edge in edges or ():
                if max(edge) >= self.num_cells:
                    raise ValueError(f"{where}: found {list(edge)}, expected two cells of 0 … {self.num_cells - 1}")

    def _refuse_cells(self) -> None:
        for number, options in enumerate(self.cells):
            if max(options.at) >= self.num_cells:
                found, last = max(options.at), self.num_cells - 1
                raise ValueError(f"cells.{number}.at: found cell {found}, expected cells of 0 … {last} ({self.shape})")
        if (twice := _first_duplicate([number for options in self.cells for number in options.at])) is not None:
            raise ValueError(f"cells: found cell {twice} in two entries, expected each cell in one")

    @property
    def rows_columns(self) -> tuple[int, int]:
        rows, columns = self.shape.split("x")
        return int(rows), int(columns)

    @property
    def num_cells(self) -> int:
        rows, columns = self.rows_columns
        return rows * columns

    @property
    def diets(self) -> tuple[float, ...]:
        """Of each cell, its share of the training images."""
        own = {number: cell.diet for cell in self.cells if cell.diet is not None for number in cell.at}
        return tuple(own.get(number, self.diet) for number in range(self.num_cells))

    def own(self, number: int) -> CellOptions:
        """What is different in this cell."""
        return next((cell for cell in self.cells if number in cell.at), CellOptions((number,)))


def _first_duplicate(values: Sequence[int | str]) -> int | str | None:
    """The first that has been there before."""
    seen: set[int | str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
