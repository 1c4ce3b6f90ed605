"""The clock of a run counts real images that went through D, over all ranks; steps follow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """step: finished steps of the game. images: real images D has seen, globally."""

    step: int = 0
    images: int = 0

    def advance(self, images: int) -> None:
        self.step += 1
        self.images += images


@dataclass
class Every:
    """Due whenever another `kimg` thousand images have passed. Follows from the clock alone: a resumed run agrees."""

    kimg: float

    def due(self, before: int, now: int) -> bool:
        """Whether a multiple of the period lies in (before, now] images. A period of 0 is never due."""
        period = self.kimg * 1000
        return period > 0 and int(now / period) > int(before / period)
