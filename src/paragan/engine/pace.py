"""Speed and remaining time of a run; steps and periodic work are timed separately."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from paragan.core.event import Event
from paragan.engine.options import EveryOptions

_TIMED = ("step", "generation", "samples", "telemetry", "score", "checkpoint")
_DECAY = 0.98  # of the exponential average over steps: about the last 50 count


@dataclass(kw_only=True)
class ProgressTimer:
    """Estimate of images per second and the remaining time from the time between events.

    total: images of the whole run. every: periods of samples, scores and checkpoints.
    """

    total: int
    every: EveryOptions
    began: float = field(default_factory=time.monotonic)
    _last: float = 0.0
    _step_s: float = 0.0
    _step_images: float = 0.0
    _images: int = 0  # at the previous step
    _steps: int = 0
    _costs: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._last = self.began

    def record(self, event: Event) -> None:
        """Attribute the time since the previous event to this kind, unless that takes no time."""
        if event.kind not in _TIMED:
            self._images = event.images if event.kind == "start" else min(self._images, event.images)
            return
        now = time.monotonic()
        spent = now - self._last
        self._last = now
        if event.kind == "step":
            self._steps += 1
            decay = 0.0 if self._steps == 2 else _DECAY  # the second step replaces the warm-up
            self._step_s = decay * self._step_s + (1 - _DECAY) * spent
            self._step_images = decay * self._step_images + (1 - _DECAY) * (event.images - self._images)
            self._images = event.images
        else:
            self._costs[event.kind] = spent if event.repeat_s is None else event.repeat_s

    def seconds(self) -> float:
        """Return the seconds since this session began."""
        return time.monotonic() - self.began

    def images_per_s(self) -> float:
        """Return the images per second of the steps only."""
        return self._step_images / self._step_s if self._step_s else 0.0

    def eta_s(self, images: int) -> float:
        """Return the seconds from `images` on for the remaining steps and the work due among them.

        A kind of work without an event yet counts as 0 s.
        """
        remaining = max(0, self.total - images)
        rate = self.images_per_s()
        other_s = sum(times * self._costs.get(kind, 0.0) for kind, times in self._count_due(images).items())
        return (remaining / rate if rate else 0.0) + other_s

    def _count_due(self, images: int) -> dict[str, int]:
        periods = {
            "samples": self.every.sample_kimg,
            "telemetry": self.every.sample_kimg,
            "score": self.every.score_kimg,
            "checkpoint": self.every.save_kimg,
        }
        due = {kind: _count_periods(kimg * 1000, images, self.total) for kind, kimg in periods.items()}
        return due | {"score": max(1, due["score"])}  # the end of a run is always scored


def _count_periods(period: float, before: int, total: int) -> int:
    return max(0, int(total / period) - int(before / period)) if period else 0
