"""Settings of a population on a grid. Nothing here imports torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from paragan.core.options import Chosen, Count, Fraction, Natural, NotNegative, On, Positive, Range

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
class GridOptions:
    """A cell for each place of `shape` (ROWSxCOLUMNS).

    topology, radius: whom a cell reads; edges: pairs of cells instead. changes: of that, while the run goes on.
    batches: of a generation; the run ends with the generation in which D has seen train.kimg.

    tournament: individuals of the neighbourhood of which the fittest is trained; 0: the cell's own is. opponents: whom
    those in training play against: each other, or a random one of the neighbourhood for each batch. replacement:
    elitist: what was trained becomes the cell's own only if it is fitter.

    losses: of which one is drawn for each cell (Mustangs); the run's own unless given. drawn: how often. diet: share of
    the training images that a cell sees; overlap: whether two cells may see the same image. share_memory: what an
    optimiser remembers travels with the weights. beat_s: seconds between a worker's signs of life; it is given up after
    two. quirks: of Lipizzaner's published code, to compare with it.
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
    diet: Annotated[float, Range(above=0, most=1)] = 1.0
    overlap: bool = True
    share_memory: bool = True
    mixture: MixtureOptions = field(default_factory=MixtureOptions)
    executor: Literal["auto", "loop", "stacked"] = "auto"
    beat_s: Positive = 2.0
    quirks: tuple[Literal["transposed", "frozen_rates"], ...] = ()

    def __post_init__(self) -> None:
        if not _SHAPE.fullmatch(self.shape) or self.num_cells > _MOST_CELLS:
            raise ValueError(f"found the shape {self.shape!r}, expected ROWSxCOLUMNS with at most {_MOST_CELLS} cells")
        if not self.overlap and self.diet * self.num_cells > 1:
            most = f"{1 / self.num_cells:.4g}"
            raise ValueError(f"found a diet of {self.diet:g} without overlap, expected at most 1 / cells = {most}")

    @property
    def rows_columns(self) -> tuple[int, int]:
        rows, columns = self.shape.split("x")
        return int(rows), int(columns)

    @property
    def num_cells(self) -> int:
        rows, columns = self.rows_columns
        return rows * columns
