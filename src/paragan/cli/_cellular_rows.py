"""What `paragan bench cellular` is asked, what it finds, and what the slides say.

Source: E. Perez, S. Nesmachnow, J. Toutouh, E. Hemberg, U. O'Reilly, "Parallel/distributed implementation of cellular
training for generative adversarial neural networks", PDCO 2020 (arXiv 2004.04633) and its slides: 200 iterations of
600 batches on MNIST, one process per cell beside a master. They do not tell which grid the routines are of, nor in
which unit.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paragan.core.errors import ConfigError
from paragan.distributed.launch.rank_env import num_cores

SLIDES_MINUTES = {"2x2": (339.6, 39.81), "3x3": (999.5, 73.24), "4x4": (1920.0, 126.68)}  # one core, distributed
SLIDES_ROUTINES = {
    "gather": (19.4, 19.4),
    "train": (264.9, 43.8),
    "update_genomes": (199.8, 16.8),
    "mutate": (25.6, 17.9),
    "overall": (509.6, 97.9),
}
ONE_CORE, WORKERS, UPSTREAM = "one core", "distributed", "upstream-style"
_SHAPE = re.compile(r"[1-9]\d?x[1-9]\d?")


@dataclass(frozen=True)
class Asked:
    """The words of the command. workers: None is one per core."""

    mnist: str | None = None
    shapes: tuple[str, ...] = tuple(SLIDES_MINUTES)
    batches: int = 50
    iterations: int = 2
    workers: int | None = None
    upstream: bool = True

    def grids(self) -> list[Grid]:
        """`ConfigError` for what cannot be measured."""
        if self.mnist is None:
            raise ConfigError(
                "bench cellular: found no data, expected --mnist DIR, the folder of MNIST's four idx files"
            )
        for shape in self.shapes:
            if not _SHAPE.fullmatch(shape):
                raise ConfigError(f"--shapes: found {shape!r}, expected ROWSxCOLUMNS such as 2x2,3x3,4x4")
        if not self.shapes:
            raise ConfigError("--shapes: found none, expected ROWSxCOLUMNS such as 2x2,3x3,4x4")
        return [Grid(shape, min(self.workers or num_cores(), _cells(shape))) for shape in dict.fromkeys(self.shapes)]


@dataclass(frozen=True)
class Played:
    """One iteration of all cells. wall_s: by the clock. wall, cpu: seconds by routine: of wall the mean over the
    processes (the upstream-style loop does not tell), of cpu their sum.
    """

    wall_s: float
    wall: Mapping[str, float]
    cpu: Mapping[str, float]

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu.values())


@dataclass
class Side:
    """One way to train a grid. reason: why there are no rounds."""

    rounds: list[Played] = field(default_factory=list)
    reason: str | None = None

    def median(self, of: Callable[[Played], float]) -> float:
        return statistics.median(map(of, self.rounds))


@dataclass
class Grid:
    """shape: rows and columns. sides: by name, those that were measured."""

    shape: str
    workers: int
    sides: dict[str, Side] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        return _cells(self.shape)

    @property
    def most_cells(self) -> int:
        """Of the worker that has most."""
        return -(-self.cells // self.workers)

    @property
    def speed_up(self) -> float | None:
        """By the clock, over one core."""
        return self.ratio(ONE_CORE, WORKERS, lambda played: played.wall_s)

    @property
    def core_efficiency(self) -> float | None:
        """CPU seconds on one core over those of all workers together."""
        return self.ratio(ONE_CORE, WORKERS, lambda played: played.cpu_s)

    @property
    def upstream_ratio(self) -> float | None:
        """CPU seconds of the upstream-style loop over ours, both on one core."""
        return self.ratio(UPSTREAM, ONE_CORE, lambda played: played.cpu_s)

    def weak_scaling(self, base: Grid) -> float | None:
        """Seconds per cell of the fullest worker on that grid over those here; 1: nothing is lost by growing."""
        if not (self.has(WORKERS) and base.has(WORKERS)):
            return None
        mine, other = (g.sides[WORKERS].median(lambda p: p.wall_s) / g.most_cells for g in (self, base))
        return other / mine

    def ratio(self, a: str, b: str, of: Callable[[Played], float]) -> float | None:
        """Median over the rounds; None where one of them was not measured."""
        if not (self.has(a) and self.has(b)):
            return None
        return statistics.median(of(x) / of(y) for x, y in zip(self.sides[a].rounds, self.sides[b].rounds, strict=True))

    def has(self, name: str) -> bool:
        return name in self.sides and bool(self.sides[name].rounds)


def slides_weak(shape: str) -> float | None:
    """Weak scaling of the slides: one cell per process on every grid."""
    return SLIDES_MINUTES["2x2"][1] / SLIDES_MINUTES[shape][1] if shape in SLIDES_MINUTES else None


def routines(sides: Sequence[Side]) -> list[str]:
    """In the order of the first that was measured."""
    return list(next((side.rounds[0].cpu for side in sides if side.rounds), {}))


def _cells(shape: str) -> int:
    rows, columns = map(int, shape.split("x"))
    return rows * columns
