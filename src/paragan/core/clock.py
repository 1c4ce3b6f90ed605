"""Clock of a run: the real images that went through D, over all ranks, and schedules by it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Finished steps of a game, and real images that D received, over all ranks."""

    step: int = 0
    images: int = 0

    def advance(self, images: int) -> None:
        """Count one step, in which D received this many real images."""
        self.step += 1
        self.images += images


@dataclass
class Every:
    """Schedule that is due every `kimg` thousand images, also after a resume."""

    kimg: float

    def due(self, before: int, now: int) -> bool:
        """Return whether a multiple of the period is in (before, now]; period 0: never due."""
        period = self.kimg * 1000
        return period > 0 and int(now / period) > int(before / period)
