"""Tells when a player's gradients have left all proportion: then nobody should play against late answers."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median

_RECENT, _USUAL, _FEWEST = 5, 200, 20


@dataclass
class GradientAlarm:
    """Rings where the mean of the last 5 gradient norms is over `factor` times the median of 200; None: never.

    Waits for 20 of them. Norms that are not finite count as large: where a loss scale is looked for, they are left out.
    """

    factor: float | None
    scaled: bool = False
    _norms: deque[float] = field(default_factory=lambda: deque(maxlen=_USUAL))

    def rings(self, norm: float) -> bool:
        """Told of one more norm."""
        if self.factor is None or (self.scaled and not math.isfinite(norm)):
            return False
        self._norms.append(norm if math.isfinite(norm) else math.inf)
        if len(self._norms) < _FEWEST:
            return False
        recent = fmean(list(self._norms)[-_RECENT:])
        return recent > self.factor * median(self._norms)
