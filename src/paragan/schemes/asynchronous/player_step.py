"""Base of the steps of G and of D: limits, waiting for the other player, and the alarm of exploding gradients."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, ClassVar, TypeVar

from paragan.core.errors import RankError
from paragan.core.phases import Phase, phase
from paragan.core.types import Side, Update
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes.base.concurrent import StalenessLog
from paragan.schemes.base.update_order import next_used

if TYPE_CHECKING:
    from paragan.schemes.asynchronous import Options

_POLL_S = 0.1  # between two checks of the time and of `StalenessLimit.stopped` while waiting
# bits of a message's note
_FALLEN_BACK = 1  # gradients have exploded: the staleness is 0 from now on
DIFFERENCE = 2  # the state is a difference from that of the last message
_NUM_RECENT = 5
_WINDOW = 200
_MIN_NORMS = 20

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class StalenessLimit:
    """Limits of a session in which G and D train at the same time.

    k: D's updates per step. orders: what each update of a player must use, as in `StalenessLog.used`, instead of what
    has arrived. stopped: polled while waiting; True ends the wait with a `RankError`.
    """

    options: Options
    k: int = 1
    orders: Mapping[Side, Sequence[int]] = field(default_factory=dict)
    timeout_s: float = 300.0
    stopped: Callable[[], bool] = lambda: False

    @property
    def max_in_flight(self) -> int:
        """Messages that may be in flight on a link; one is sent in addition when both pause."""
        # more than the player that is ahead can send before its limit stops it: a full link never does
        return self.k * (self.options.staleness + 2) + 1

    @property
    def rounds_fakes(self) -> bool:
        """Whether images are sent in bfloat16."""
        return self.options.fakes_dtype == "bf16"


class PlayerStep:
    """One player's part of the steps of a session."""

    side: ClassVar[Side]

    def __init__(self, gan: GAN, limits: StalenessLimit) -> None:
        player = gan.slots[self.side]
        assert isinstance(player, Player)
        self.gan = gan
        self.player = player
        self.limits = limits
        self.log = StalenessLog()
        self._alarm: GradientAlarm | None = None
        self._num_updates = 0  # in this session

    @property
    def staleness(self) -> int:
        """Steps that G's opponent may be old: 0 after exploding gradients."""
        return 0 if self.has_fallen_back else self.limits.options.staleness

    @property
    def note(self) -> int:
        """Note of a message to the other player."""
        return _FALLEN_BACK if self.has_fallen_back else 0

    @property
    def has_fallen_back(self) -> bool:
        """Whether gradients of any player have exploded, as far as is known here."""
        return self.log.in_step_at is not None

    def read_note(self, note: int, version: int) -> None:
        """Fall back if the note reports exploding gradients."""
        if note & _FALLEN_BACK:
            self.fall_back(version)

    def fall_back(self, version: int) -> None:
        """Set the staleness to 0 from this version on; the next message reports it."""
        if not self.has_fallen_back:
            self.log.in_step_at = version

    def check_gradients(self, update: Update) -> None:
        """Check for exploding gradients. Reading the norm waits for the device."""
        self._num_updates += 1
        factor = self.limits.options.fall_back
        # a turn that is not due has no gradients
        if factor is None or self.staleness == 0 or "gradient_norm" not in update.scalars:
            return
        if self._alarm is None:
            self._alarm = GradientAlarm(factor=factor, scaled=self.player.scaler is not None)
        if self._alarm.triggers(float(update.scalars["gradient_norm"])):
            self.fall_back(self.player.version)

    @property
    def recorded(self) -> int | None:
        """Version or count that the next update must use; None without a recorded order."""
        return next_used(self.limits.orders.get(self.side), self._num_updates)

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
        # without waiting, and not counted as a wait
        while (drain or not has_arrived()) and (item := receive(0.0)) is not None:
            handle(item)
        began = time.monotonic()
        while not has_arrived():
            if (item := receive(_POLL_S)) is not None:
                handle(item)
            elif self.limits.stopped() or time.monotonic() - began > self.limits.timeout_s:
                raise RankError(f"no message from {sender} for {time.monotonic() - began:.0f} s")
        self.log.record_wait(time.monotonic() - began)


@dataclass
class GradientAlarm:
    """Alarm if the mean of the last 5 gradient norms exceeds `factor` times the median of 200.

    Requires 20 norms. Norms that are not finite count as large, or with `scaled` are ignored, because
    the loss scale is still being searched.
    """

    factor: float
    scaled: bool = False
    _norms: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def triggers(self, norm: float) -> bool:
        """Add one norm; returns whether gradients have exploded."""
        if self.scaled and not math.isfinite(norm):
            return False
        self._norms.append(norm if math.isfinite(norm) else math.inf)
        if len(self._norms) < _MIN_NORMS:
            return False
        recent = fmean(list(self._norms)[-_NUM_RECENT:])
        # a median: the norms of the explosion are in the window, too, and would raise a mean
        return recent > self.factor * median(self._norms)
