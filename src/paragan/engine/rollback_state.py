"""State of the rollbacks of a run, in each of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paragan.checkpoint.reader import read_counts
from paragan.engine.collapse import CollapseMonitor


@dataclass
class RollbackState:
    """Rollbacks so far, and what the next decision depends on.

    good: step of the newest good checkpoint; -1: none. good_images: at the newest good measurement.
    lost_images: how much longer the run is.
    applied: version and finite updates at the last update that was applied, by player.
    """

    monitor: CollapseMonitor
    count: int = 0
    lost_images: int = 0
    good: int = -1
    good_images: int = 0
    lr_factors: dict[str, float] = field(default_factory=dict)
    applied: dict[str, tuple[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return asdict(self)

    def restore(self, values: Mapping[str, Any]) -> None:
        """Restore the result of `to_json`. Invalid values raise KeyError, TypeError or ValueError."""
        vars(self).update(read_counts(values, "count", "lost_images", "good", "good_images"))
        factors = dict(values["lr_factors"]).items()
        self.lr_factors = {side: float(factor) for side, factor in factors}
        applied = dict(values["applied"]).items()
        self.applied = {side: (int(version), int(count)) for side, (version, count) in applied}
        monitor = values["monitor"]
        self.monitor.bad = read_counts(monitor["bad"], *monitor["bad"])
        self.monitor.best = {name: float(value) for name, value in dict(monitor["best"]).items()}

    def slow(self, sides: tuple[str, ...], factor: float) -> None:
        """Multiply the factors of these players' learning rates."""
        for side in sides:
            self.lr_factors[side] = self.lr_factors.get(side, 1.0) * factor
