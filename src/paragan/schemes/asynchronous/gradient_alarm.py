"""Detector of exploding gradients, with which no player should train on delayed messages."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median

_NUM_RECENT = 5
_WINDOW = 200
_MIN_NORMS = 20


@dataclass
class GradientAlarm:
    """Alarm if the mean of the last 5 gradient norms exceeds `factor` times the median of 200.

    factor: None disables it. Requires 20 norms. Norms that are not finite count as large, or with
    `scaled` are ignored, because the loss scale is still being searched.
    """

    factor: float | None
    scaled: bool = False
    _norms: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def triggers(self, norm: float) -> bool:
        """Add one norm; returns whether gradients have exploded."""
        if self.factor is None or (self.scaled and not math.isfinite(norm)):
            return False
        self._norms.append(norm if math.isfinite(norm) else math.inf)
        if len(self._norms) < _MIN_NORMS:
            return False
        recent = fmean(list(self._norms)[-_NUM_RECENT:])
        return recent > self.factor * median(self._norms)
