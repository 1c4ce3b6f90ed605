"""Settings of a population on a grid. Nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from paragan.core.options import Chosen, Count, Fraction, Natural, NotNegative, On, Positive, Range
from paragan.game.options import OptimizerOptions

Share = Annotated[float, Range(above=0, most=1)]

_SHAPE = re.compile(r"([1-9]\d{0,2})x([1-9]\d{0,2})")
_MOST_CELLS = 4096


@dataclass(frozen=True)
class FitnessOptions:
    """num_images: real samples, and as many latents, on which everybody is compared: the same for all cells of a
    generation. of: over the opponents in the neighbourhood. loss: of all cells, whatever they train on: losses on
    different scales do not rank one another.
    """

    num_images: Count = 1000
    of: Literal["mean", "worst", "best"] = "mean"
    loss: Annotated[Chosen, On("losses")] | None = None


@dataclass(frozen=True)
class RateOptions:
    """How learning rates mutate before a generation, with `probability` for each player.

    gaussian: lr + N(0, rate), not below 0 (Lipizzaner); lognormal: lr exp(N(0, rate)).
    """

    probability: Fraction = 0.5
    form: Literal["gaussian", "lognormal"] = "gaussian"
    rate: NotNegative = 1e-4


@dataclass(frozen=True)
class MixtureOptions:
    """The weights with which a neighbourhood's generators make images, evolved by a (1+1)-ES step per generation.

    sigma: of the step. num_images: that each generator makes to be scored by; 0: weights stay equal. ensemble: how many
    generators of the whole grid the greedy ensemble after training may have; 0: none is looked for.
    """

    sigma: NotNegative = 0.01
    num_images: Natural = 1000
    ensemble: Natural = 8


@dataclass(frozen=True)
class Change:
    """From generation `at` on, the neighbourhood is another one."""

    at: Count
    topology: Literal["torus", "ring"] = "torus"
    radius: Count = 1
    edges: tuple[tuple[Natural, Natural], ...] | None = None


@dataclass(frozen=True)
class OwnPlayer:
    """optimizer: whole, instead of the run's. lr: of the run's optimiser, instead of the run's; where a cell starts."""

    optimizer: OptimizerOptions | None = None
    lr: Positive | None = None

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.lr is not None:
            raise ValueError("found lr beside optimizer, expected it inside: {optimizer: {name: …, lr: …}}")


@dataclass(frozen=True)
class CellOptions:
    """What is different in the cells `at`; what is not given is the run's.

    loss: theirs throughout, none is drawn. diet: their share of the training images. classes: of the data, by name or
    number; they see no others.
    """

    at: tuple[Natural, ...]
    loss: Annotated[Chosen, On("losses")] | None = None
    g: OwnPlayer | None = None
    d: OwnPlayer | None = None
    diet: Share | None = None
    classes: tuple[Natural | str, ...] | None = None

    def __post_init__(self) -> None:
        for name, found in (("at", self.at), ("classes", self.classes)):
            if found == ():
                raise ValueError(f"{name}: found an empty list, expected at least one")
            if (twice := _twice(found or ())) is not None:
                raise ValueError(f"{name}: found {twice} twice, expected each once")


@dataclass(frozen=True)
class GridOptions:
    """A cell for each place of `shape` (ROWSxCOLUMNS).

    topology, radius: whom a cell reads; edges: pairs of cells instead. changes: of that, while the run goes on.
    batches: of a generation; the run ends with the generation in which D has seen train.kimg.

    tournament: individuals of the neighbourhood of which the fittest is trained; 0: the cell's own is. opponents: whom
    those in training play against: each other, or a random one of the neighbourhood for each batch. replacement:
    elitist: what was trained becomes the cell's own only if it is fitter.

    losses: of which one is drawn for each cell (Mustangs); the run's own unless given. drawn: how often. diet: share of
    the training images that a cell sees; overlap: whether two cells may see the same image. cells: in which something
    is different. share_memory: what an optimiser remembers travels with the weights. age: generations that a
    worker may go on without its neighbours' newest; 0 is lock-step. beat_s: seconds between a worker's heartbeats;
    it has failed after ten, or later where gaps have been long. quirks: of Lipizzaner's published code, to compare
    with it.
    """

    shape: str = "3x3"
    topology: Literal["torus", "ring"] = "torus"
    radius: Count = 1
    edges: tuple[tuple[Natural, Natural], ...] | None = None
    changes: tuple[Change, ...] = ()
    batches: Count = 600
    tournament: Natural = 2
    opponents: Literal["selected", "random"] = "selected"
    replacement: Literal["elitist", "always"] = "elitist"
    fitness: FitnessOptions = field(default_factory=FitnessOptions)
    rates: RateOptions = field(default_factory=RateOptions)
    losses: tuple[Annotated[Chosen, On("losses")], ...] = ()
    drawn: Literal["generation", "batch"] = "generation"
    diet: Share = 1.0
    overlap: bool = True
    cells: tuple[CellOptions, ...] = ()
    share_memory: bool = True
    mixture: MixtureOptions = field(default_factory=MixtureOptions)
    executor: Literal["auto", "loop", "stacked", "recorded"] = "auto"
    age: Natural = 0
    beat_s: Positive = 2.0
    quirks: tuple[Literal["transposed", "frozen_rates"], ...] = ()

    def __post_init__(self) -> None:
        if not _SHAPE.fullmatch(self.shape) or self.num_cells > _MOST_CELLS:
            raise ValueError(f"found the shape {self.shape!r}, expected ROWSxCOLUMNS with at most {_MOST_CELLS} cells")
        rows, columns = self.rows_columns
        if "transposed" in self.quirks and rows != columns:
            raise ValueError(f"quirks: found transposed on {self.shape}, expected a square grid")
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
        if (twice := _twice([number for options in self.cells for number in options.at])) is not None:
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


def _twice(values: Sequence[int | str]) -> int | str | None:
    """The first that has been there before."""
    seen: set[int | str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
