"""Score of a generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paragan.core.errors import describe_error
from paragan.core.metric import Direction


@dataclass(frozen=True)
class FailureLog:
    """Warnings about metrics without a value, each printed once."""

    log: Callable[[str], None]
    _logged: set[str] = field(default_factory=set, init=False)

    def add(self, name: str, error: Exception) -> None:
        """Warn why a metric, or the score of a mixture, has no value."""
        text = f"warning: score: {name} has no value: {describe_error(error)}"
        if text not in self._logged:
            self._logged.add(text)
            self.log(text)


@dataclass(frozen=True, kw_only=True)
class Score:
    """Values of all metrics for a generator, with the protocol of their measurement.

    metrics: values by name. num_images: number of generated images. protocol: must be equal for two scores to compare.
    real: values of held-out real images by the same metrics, as a reference, if any. directions: of the metrics, also
    of those that failed and have no value; lower is better by default. intervals: 95 % intervals of the values, of
    those that have one. seconds: duration without the work that only the first score has.
    """

    metrics: dict[str, float]
    num_images: int
    protocol: dict[str, Any]
    real: dict[str, float] = field(default_factory=dict)
    directions: Mapping[str, Direction] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Score:
        """Return the score with these `values`, as an event has them or JSON; `seconds` is not among them."""
        return cls(
            metrics={name: value for name, value in values.items() if isinstance(value, float)},
            num_images=values["num_images"],
            protocol=values["protocol"],
            real=values.get("real", {}),
            directions={name: Direction(number) for name, number in values["directions"].items()},
            intervals={name: (low, high) for name, (low, high) in values.get("intervals", {}).items()},
        )

    @property
    def values(self) -> dict[str, Any]:
        """Values of an event and of `score.json`: each metric under its name, the only ones that are a float."""
        real = {"real": self.real} if self.real else {}
        directions = {name: int(direction) for name, direction in self.directions.items()}
        return {
            **self.metrics,
            **real,
            **({"intervals": {name: list(ends) for name, ends in self.intervals.items()}} if self.intervals else {}),
            "num_images": self.num_images,
            "protocol": self.protocol,
            "directions": directions,
        }

    @property
    def ranked(self) -> list[str]:
        """Metrics with a direction; the first that has a value decides which checkpoint is the best."""
        names = dict.fromkeys((*self.directions, *self.metrics))
        return [name for name in names if self.direction(name) is not Direction.NEITHER]

    @property
    def decisive(self) -> str | None:
        """Metric that decides which checkpoint is the best; None if none has a value."""
        return next((name for name in self.ranked if name in self.metrics), None)

    def direction(self, metric: str) -> Direction:
        """Return which values of a metric are better."""
        return self.directions.get(metric, Direction.LOWER)
