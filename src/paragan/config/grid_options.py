"""Options of a population on a grid, read with every config; the grid is an extension. No import of torch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from paragan.core.option_types import Category, Choice, Count, Fraction, Interval, Natural, NotNegative, Positive

Share = Annotated[float, Interval(gt=0, le=1)]

_SHAPE = re.compile(r"([1-9]\d{0,2})x([1-9]\d{0,2})")
_MAX_CELLS = 4096


@dataclass(frozen=True)
class FitnessOptions:
    """Comparison of individuals."""

    num_images: Count = 1000
    """Real images, and as many latents, on which all cells of a generation are compared."""
    aggregate: Literal["mean", "worst", "best"] = "mean"
    """How the losses against the opponents of the neighbourhood are combined."""
    loss: Annotated[Choice, Category("losses")] | None = None
    """Loss of the comparison for all cells, whatever they train with; null: nonsaturating."""


@dataclass(frozen=True)
class RateOptions:
    """Mutation of the learning rates before a generation."""

    probability: Fraction = 0.5
    """Probability that a player's learning rate mutates."""
    form: Literal["gaussian", "lognormal"] = "gaussian"
    """gaussian: lr + N(0, rate), not below 0 (Lipizzaner); lognormal: lr exp(N(0, rate))."""
    rate: NotNegative = 1e-4
    """Standard deviation of the mutation."""


@dataclass(frozen=True)
class MixtureOptions:
    """Weights of the generators of a neighbourhood, evolved by one (1+1)-ES step per generation."""

    sigma: NotNegative = 0.01
    """Standard deviation of the step."""
    num_images: Natural = 1000
    """Images per generator by which a mixture is scored; 0: weights stay equal."""
    ensemble: Natural = 8
    """Most generators of the greedy ensemble over the whole grid after training; 0: no ensemble."""


@dataclass(frozen=True)
class CellPlayerOptions:
    """Learning rate of a player in single cells."""

    lr: Positive | None = None
    """Initial learning rate of these cells, with the run's optimiser."""


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """Options of single cells, which replace the run's."""

    at: tuple[Natural, ...]
    """Numbers of the cells, counted row by row from 0."""
    loss: Annotated[Choice, Category("losses")] | None = None
    """Loss of these cells in all generations, instead of a drawn one."""
    g: CellPlayerOptions | None = None
    """G's learning rate in these cells."""
    d: CellPlayerOptions | None = None
    """D's learning rate in these cells."""
    diet: Share | None = None
    """Share of the training images that these cells use."""
    classes: tuple[Natural | str, ...] | None = None
    """Classes of the data that these cells use, by name or number; null: all."""

    def __post_init__(self) -> None:
        for name, values in (("at", self.at), ("classes", self.classes)):
            if values == ():
                raise ValueError(f"{name} is empty; list at least one")
            duplicate = _first_duplicate(values or ())
            if duplicate is not None:
                raise ValueError(f"{name} lists {duplicate} twice; list each once")


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Options of a population with one cell for each place of a grid."""

    shape: str = "3x3"
    """Size of the grid, ROWSxCOLUMNS."""
    topology: Literal["torus", "ring"] = "torus"
    """Neighbours of a cell: on a torus or on a ring."""
    radius: Natural = 1
    """Distance up to which cells are neighbours; 0: cells are independent."""
    batches: Count = 600
    """Batches per generation; the run ends after the generation in which D reaches train.kimg."""
    tournament: Natural = 2
    """Individuals drawn from the neighbourhood to train the fittest; 0: train the cell's."""
    opponents: Literal["selected", "random"] = "selected"
    """Opponents in training: the selected ones, or random ones of the neighbourhood per batch."""
    replacement: Literal["elitist", "always"] = "elitist"
    """elitist: a trained individual replaces the cell's if it is fitter; always: in any case."""
    fitness: FitnessOptions = field(default_factory=FitnessOptions)
    """Comparison of individuals."""
    rates: RateOptions = field(default_factory=RateOptions)
    """Mutation of the learning rates."""
    losses: tuple[Annotated[Choice, Category("losses")], ...] = ()
    """Losses from which one is drawn for each cell and generation (Mustangs); empty: the run's loss."""
    diet: Share = 1.0
    """Share of the training images that a cell uses, drawn for each cell."""
    cells: tuple[CellOptions, ...] = ()
    """Options of single cells."""
    mixture: MixtureOptions = field(default_factory=MixtureOptions)
    """Weights of the generators of a neighbourhood."""
    executor: Literal["auto", "loop", "stacked", "recorded"] = "auto"
    """Execution of the cells of a process.

    loop: one after another; stacked: as one batched program; recorded: that program recorded as
    CUDA graphs; auto: the fastest by measurement.
    """
    heartbeat_s: Positive = 2.0
    """Seconds between a worker's heartbeats."""

    def __post_init__(self) -> None:
        if not _SHAPE.fullmatch(self.shape) or self.num_cells > _MAX_CELLS:
            raise ValueError(f"shape {self.shape!r} is not ROWSxCOLUMNS with at most {_MAX_CELLS} cells; use e.g. 3x3")
        self._check_cells()

    def _check_cells(self) -> None:
        for number, options in enumerate(self.cells):
            if max(options.at) >= self.num_cells:
                raise ValueError(
                    f"cells.{number}.at: a {self.shape} grid has no cell {max(options.at)}; use 0 to "
                    f"{self.num_cells - 1}"
                )
        duplicate = _first_duplicate([cell for options in self.cells for cell in options.at])
        if duplicate is not None:
            raise ValueError(f"cells: cell {duplicate} is in two entries; list each cell in one")

    @property
    def rows_columns(self) -> tuple[int, int]:
        rows, columns = self.shape.split("x")
        return int(rows), int(columns)

    @property
    def num_cells(self) -> int:
        rows, columns = self.rows_columns
        return rows * columns

    @property
    def data_shares(self) -> tuple[float, ...]:
        """Share of the training images by cell."""
        diets = [self.of_cell(number).diet for number in range(self.num_cells)]
        return tuple(self.diet if diet is None else diet for diet in diets)

    def of_cell(self, number: int) -> CellOptions:
        """Return the options of a cell that differ from the run's."""
        return next((cell for cell in self.cells if number in cell.at), CellOptions(at=(number,)))


def _first_duplicate(values: Sequence[int | str]) -> int | str | None:
    """Return the first value that occurs a second time; None if all are different."""
    return next((value for place, value in enumerate(values) if value in values[:place]), None)
