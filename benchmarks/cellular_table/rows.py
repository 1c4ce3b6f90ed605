"""Options and results of `python -m benchmarks.cellular_table`, and the numbers of the slides.

Source: E. Perez, S. Nesmachnow, J. Toutouh, E. Hemberg, U. O'Reilly, "Parallel/distributed implementation of cellular
training for generative adversarial neural networks", PDCO 2020 (arXiv 2004.04633) and its slides: 200 iterations of
600 batches on MNIST, one process per cell plus a master. They do not specify the grid or the unit of the times per
routine.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paragan.core.errors import ConfigError
from paragan.core.process_environment import num_cores

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
class CellularOptions:
    """Options of the command. workers: None is one per core."""

    mnist: str | None = None
    shapes: tuple[str, ...] = tuple(SLIDES_MINUTES)
    batches: int = 50
    iterations: int = 2
    workers: int | None = None
    upstream: bool = True

    def grids(self) -> list[GridResult]:
        """Empty results, one per grid. Raises `ConfigError` for what cannot be measured."""
        if self.mnist is None:
            raise ConfigError("bench cellular needs data; pass --mnist DIR, the folder with MNIST's four idx files")
        for shape in self.shapes:
            if not _SHAPE.fullmatch(shape):
                raise ConfigError(f"--shapes: {shape!r} is not a grid; use ROWSxCOLUMNS such as 2x2,3x3,4x4")
        if not self.shapes:
            raise ConfigError("--shapes is empty; use ROWSxCOLUMNS such as 2x2,3x3,4x4")
        workers = self.workers or num_cores()
        return [GridResult(shape, min(workers, _num_cells(shape))) for shape in dict.fromkeys(self.shapes)]


@dataclass(frozen=True)
class Iteration:
    """Times of one iteration of all cells.

    wall_s: elapsed seconds. wall, cpu: seconds per routine; wall is the mean over the processes (empty for the
    upstream-style loop), cpu their sum.
    """

    wall_s: float
    wall: Mapping[str, float]
    cpu: Mapping[str, float]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all routines."""
        return sum(self.cpu.values())


@dataclass
class MethodResult:
    """Iterations of one method of training a grid. reason: why there are none."""

    iterations: list[Iteration] = field(default_factory=list)
    reason: str | None = None

    def median(self, value: Callable[[Iteration], float]) -> float:
        """Median of a value over the iterations."""
        return statistics.median(map(value, self.iterations))


@dataclass
class GridResult:
    """Results of one grid. shape: rows and columns. methods: results by name of the method."""

    shape: str
    workers: int
    methods: dict[str, MethodResult] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return _num_cells(self.shape)

    @property
    def max_cells(self) -> int:
        """Cells of the worker that has the most."""
        return -(-self.cells // self.workers)

    @property
    def speed_up(self) -> float | None:
        """Elapsed time on one core divided by that on workers."""
        return self.ratio(ONE_CORE, WORKERS, lambda iteration: iteration.wall_s)

    @property
    def core_efficiency(self) -> float | None:
        """CPU seconds on one core divided by those of all workers together."""
        return self.ratio(ONE_CORE, WORKERS, lambda iteration: iteration.cpu_s)

    @property
    def upstream_ratio(self) -> float | None:
        """CPU seconds of the upstream-style loop divided by ours, both on one core."""
        return self.ratio(UPSTREAM, ONE_CORE, lambda iteration: iteration.cpu_s)

    def weak_scaling(self, base: GridResult) -> float | None:
        """Seconds per cell of the fullest worker on the base grid divided by those here; 1 is ideal."""
        if not (self.has(WORKERS) and base.has(WORKERS)):
            return None
        return base._seconds_per_cell() / self._seconds_per_cell()

    def ratio(self, a: str, b: str, value: Callable[[Iteration], float]) -> float | None:
        """Median over the iterations of a's value divided by b's; None where one of them was not measured."""
        if not (self.has(a) and self.has(b)):
            return None
        pairs = zip(self.methods[a].iterations, self.methods[b].iterations, strict=True)
        return statistics.median(value(x) / value(y) for x, y in pairs)

    def has(self, name: str) -> bool:
        """Whether the method was measured."""
        return name in self.methods and bool(self.methods[name].iterations)

    def _seconds_per_cell(self) -> float:
        return self.methods[WORKERS].median(lambda iteration: iteration.wall_s) / self.max_cells


def slides_weak_scaling(shape: str) -> float | None:
    """Weak scaling in the slides: one cell per process on every grid."""
    return SLIDES_MINUTES["2x2"][1] / SLIDES_MINUTES[shape][1] if shape in SLIDES_MINUTES else None


def routines(methods: Sequence[MethodResult]) -> list[str]:
    """Names of the routines, in the order of the first method that was measured."""
    return list(next((method.iterations[0].cpu for method in methods if method.iterations), {}))


def _num_cells(shape: str) -> int:
    rows, columns = map(int, shape.split("x"))
    return rows * columns
