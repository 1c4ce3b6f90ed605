"""Base of both halves of an asynchronous step: waiting, and what limits the harm of a lag."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TypeVar

from paragan.core.dist import World
from paragan.core.errors import RankError
from paragan.core.phases import Phase, phase
from paragan.core.types import Update
from paragan.game.player import Player
from paragan.schemes._lag import LagBound, LagRecord
from paragan.schemes._update_order import next_used

_POLL_S = 0.1  # between two checks of the time and of `LagBound.stopped` while waiting
# bits of a message's note
_IN_STEP = 1  # the bounds are 0 from now on
DIFFERENCE = 2  # the state is a difference from that of the last message
_NUM_RECENT = 5
_WINDOW = 200
_MIN_NORMS = 20

Item = TypeVar("Item")


class HalfStep:
    """Base of both halves: a bound that may fall to 0, and a learning rate that depends on the lag.

    bound: S or A, in steps. world: ranks of this player.
    """

    def __init__(self, limits: LagBound, bound: int, world: World) -> None:
        self.limits = limits
        self.bound = bound
        self.world = world
        self.lag_record = LagRecord()
        self._alarm: GradientAlarm | None = None
        self._num_updates = 0  # in this session

    @property
    def note(self) -> int:
        """Note of a message to the other side."""
        return _IN_STEP if self.is_in_step else 0

    @property
    def is_in_step(self) -> bool:
        """Whether gradients have exploded on any side, as far as is known here."""
        return self.lag_record.in_step_at is not None

    def read_note(self, note: int, version: int) -> None:
        """Set the bound to 0 if the note reports exploding gradients on any side."""
        if note & _IN_STEP:
            self.fall_back(version)
            self.bound = 0

    def fall_back(self, version: int) -> None:
        """Set the bound to 0 for exploding gradients of this side; the next message reports it."""
        if not self.is_in_step:
            self.lag_record.in_step_at = version
        self.bound = 0

    def check_gradients(self, player: Player, update: Update) -> None:
        """Check for exploding gradients. Reading the norm waits for the device."""
        self._num_updates += 1
        if self.limits.fall_back is None or not self.limits.allows_lag or self.is_in_step:
            return
        if self._alarm is None:
            self._alarm = GradientAlarm(self.limits.fall_back, player.scaler is not None)
        if self._alarm.triggers(float(update.scalars["gradient_norm"])):
            self.fall_back(player.version)

    def damp_lr(self, player: Player, lag: int) -> None:
        """Reduce the learning rate against an old opponent. Collective over the player's ranks."""
        if self.limits.lag_lr:
            player.damping = 1 / (1 + self.limits.lag_lr * self.world.all_reduce_max(lag))

    @property
    def recorded(self) -> int | None:
        """Version or count that the next update must use; None without a recorded order."""
        return next_used(self.limits.order, self._num_updates)

    @phase(Phase.COMMUNICATION)
    def wait(
        self,
        sender: str,
        receive: Callable[[float], Item | None],
        handle: Callable[[Item], None],
        has_arrived: Callable[[], bool],
        drain: bool,
    ) -> None:
        """Handle messages of `sender` until `has_arrived`, and record the seconds waited.

        drain: first handle all messages that have arrived, also if they are not needed yet. Raises
        `RankError` after the time-out, or when stopped.
        """
        while (drain or not has_arrived()) and (item := receive(0.0)) is not None:
            handle(item)
        began = time.monotonic()
        while not has_arrived():
            if (item := receive(_POLL_S)) is not None:
                handle(item)
            elif self.limits.stopped() or time.monotonic() - began > self.limits.timeout_s:
                raise RankError(f"no message from {sender} for {time.monotonic() - began:.0f} s")
        self.lag_record.record_wait(time.monotonic() - began)


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
