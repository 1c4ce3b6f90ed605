"""Depth of the loading pipeline, as a factor of what its threads need, by the stalls that remain."""

from __future__ import annotations

MAX_STALL = 0.02  # share of the time that the consumer may wait
STALL_WINDOW_S = 5.0
DEPTH_STEP = 1.5  # factor
MAX_FACTOR = 8.0


class Lookahead:
    """Factors of the depth, because a slow read delays all batches after it.

    A factor grows while the consumer waits although the threads suffice, and remains: one for the
    least number of readers (True), one for more (False).
    """

    def __init__(self) -> None:
        self.factors = {True: 1.0, False: 1.0}
        self._since = (0.0, 0.0)  # time and seconds waited
        self._num_stalls = 0

    def restart(self, time_s: float, wait_s: float) -> None:
        """Start a new measurement, because a stage was resized."""
        self._since = (time_s, wait_s)
        self._num_stalls = 0

    def update(self, time_s: float, wait_s: float, is_calm: bool, can_grow: bool) -> bool:
        """Return whether the depth grows: after stalls in two windows one after the other.

        wait_s: seconds that the consumer waited. can_grow: threads suffice, and there is memory.
        """
        elapsed_s = time_s - self._since[0]
        if elapsed_s < STALL_WINDOW_S:
            return False
        has_stalled = can_grow and wait_s - self._since[1] > MAX_STALL * elapsed_s
        self._num_stalls = self._num_stalls + 1 if has_stalled else 0
        self._since = (time_s, wait_s)
        if self._num_stalls < 2 or self.factors[is_calm] >= MAX_FACTOR:
            return False
        self.factors[is_calm] *= DEPTH_STEP
        self._num_stalls = 0
        return True
