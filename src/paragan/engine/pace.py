"""How fast a run goes and how long it still takes: steps and what is due between them are timed apart."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from paragan.core.clock import Clock
from paragan.engine.options import EveryOptions

_RECENT = 0.98  # of the weight of the steps before: the last 50 or so count


@dataclass
class ProgressTimer:
    """total: images of the whole run. Tell it of every event; `eta_s` and `images_per_s` follow from what they cost."""

    total: int
    every: EveryOptions
    began: float = field(default_factory=time.monotonic)
    _last: float = 0.0
    _step_s: float = 0.0
    _weight: float = 0.0
    _steps: int = 0
    _costs: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._last = self.began

    def record(self, kind: str, again_s: float | None = None) -> None:
        """An event of this kind has just been dealt with: all time since the one before is its own.

        again_s: what the next of its kind will take, where that is known better.
        """
        now = time.monotonic()
        spent, self._last = now - self._last, now
        if kind == "step":
            self._steps += 1
            kept = 0.0 if self._steps == 2 else _RECENT  # the first warms up: it is forgotten when there is another
            self._step_s = kept * self._step_s + (1 - _RECENT) * spent
            self._weight = kept * self._weight + (1 - _RECENT)
        else:
            self._costs[kind] = spent if again_s is None else again_s

    def seconds(self) -> float:
        """Since this session began."""
        return time.monotonic() - self.began

    def images_per_s(self, batch: float) -> float:
        """In steps alone, at `batch` images each."""
        return batch * self._weight / self._step_s if self._step_s else 0.0

    def eta_s(self, clock: Clock, batch: float) -> float:
        """Of the steps left, and of the pictures, scores and checkpoints due among them, as far as one was seen."""
        left = max(0, self.total - clock.images)
        rate = self.images_per_s(batch)
        looks = sum(times * self._costs.get(kind, 0.0) for kind, times in self._due(clock.images).items())
        return (left / rate if rate else 0.0) + looks

    def _due(self, images: int) -> dict[str, int]:
        every = self.every
        pictures = dict.fromkeys(("samples", "telemetry"), every.sample_kimg)
        periods = pictures | {"score": every.score_kimg, "checkpoint": every.save_kimg}
        due = {kind: _times(kimg * 1000, images, self.total) for kind, kimg in periods.items()}
        return due | {"score": max(1, due["score"])}  # the end of a run is always scored


def _times(period: float, before: int, total: int) -> int:
    return max(0, int(total / period) - int(before / period)) if period else 0
