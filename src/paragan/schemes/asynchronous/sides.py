"""The two halves of an asynchronous step: what G's ranks do, and what D's ranks do, with messages between them.

S and A are the bounds, k D's updates per step. G's update number t plays against a D of at least k (t + 1 - S) updates,
D's step t is shown fakes of a G of at least t - A; whoever is ahead waits. With S = A = 0 nobody is ever ahead: G waits
for the D that its fakes have made. A side whose gradients leave all proportion sets both bounds to 0 on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError, RankError
from paragan.core.types import Batch, Rows, Update
from paragan.distributed.transports.link import Message, ReceiveEnd, SendEnd
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.player import Player, fakes_for
from paragan.game.snapshot import Snapshot, packed
from paragan.schemes._lag import LagBound, LagRecord
from paragan.schemes.asynchronous.fakes import FakesMessage, FakesReceiver, FakesSender
from paragan.schemes.asynchronous.gradient_alarm import GradientAlarm

_LOOK_S = 0.1  # how often somebody who waits looks whether to go on
_IN_STEP = 1  # a message's note: from now on S is 0

Found = TypeVar("Found", covariant=True)


class _Side:
    """What both have: a bound that may fall to 0, and a learning rate by lag."""

    def __init__(self, pace: LagBound, bound: int, own: World) -> None:
        self.pace, self.bound, self.own, self.lag_record = pace, bound, own, LagRecord()
        self._alarm: GradientAlarm | None = None
        self._num_updates = 0  # in this session

    @property
    def note(self) -> int:
        return 0 if self.lag_record.in_step_at is None else _IN_STEP

    def heed(self, note: int, version: int) -> None:
        """Somebody has seen that gradients leave all proportion."""
        if note == _IN_STEP and self.lag_record.in_step_at is None:
            self.lag_record.in_step_at, self.bound = version, 0

    def played(self, player: Player, update: Update) -> None:
        """Look at what an update tells; the reading waits for the device, as the next message does anyway."""
        self._num_updates += 1
        if self.pace.fall_back is None or not self.pace.is_late or self.lag_record.in_step_at is not None:
            return
        if self._alarm is None:
            self._alarm = GradientAlarm(self.pace.fall_back, player.scaler is not None)
        if self._alarm.rings(float(update.scalars["gradient_norm"])):
            self.heed(_IN_STEP, player.version)

    def damped(self, player: Player, lag: int) -> None:
        """Learn more slowly from an old opponent; all ranks that hold the player do so alike."""
        if self.pace.lag_lr:
            player.damping = 1 / (1 + self.pace.lag_lr * self.own.all_reduce_max(lag))

    @property
    def asked(self) -> int | None:
        """What the next update has to use, if that is given."""
        if self.pace.order is None:
            return None
        if self._num_updates >= len(self.pace.order):
            raise ConfigError(f"scheme.order: found an end after {self._num_updates} updates, expected a shorter run")
        return self.pace.order[self._num_updates]


class GeneratorSide(_Side):
    """opponent: D as it was sent last. fakes: to the ranks of D; states: from one. d_parts: as D cuts its fakes."""

    def __init__(
        self,
        opponent: Snapshot,
        fakes: FakesSender,
        states: ReceiveEnd,
        pace: LagBound,
        own: World = ALONE,
        d_parts: int = 1,
    ) -> None:
        super().__init__(pace, pace.staleness, own)
        self.opponent, self.fakes, self.states, self.d_parts = opponent, fakes, states, d_parts
        self._show = self._of_its_own_turn if pace.reuse else self._made_for_it

    def step(self, gan: GAN, rows: Sequence[Rows]) -> Update:
        """G's turn. rows: of D's updates of this step, as the ranks of G share them."""
        g = gan.g
        assert isinstance(g, Player)
        t = g.version
        turn = self._show(gan, g, rows)
        wanted = self.pace.k * (t + 1 - self.bound) if self.asked is None else self.asked
        self._follow_until(wanted, all_of_them=self.asked is None)
        if self.asked not in (None, self.opponent.version):
            raise RankError(f"order: found D at update {self.opponent.version}, expected {self.asked} as recorded")
        lag = max(0, t + 1 - self.opponent.version // self.pace.k)
        self.lag_record.lags[lag] += 1
        self.lag_record.used.append(self.opponent.version)
        self.damped(g, lag)
        update = g.update(turn, against=self.opponent)
        self.played(g, update)
        return update

    def meet(self, step: int) -> None:
        """Take in what has come, and wait until D has made that many steps."""
        self._follow_until(self.pace.k * step)

    def _of_its_own_turn(self, gan: GAN, g: Player, rows: Sequence[Rows]) -> Any:
        turn = gan.g_turn(Batch(self._g_rows(rows[-1])))
        made = g.generate_fakes(turn)
        turn = turn.with_fakes(made, g.version)
        self.fakes.send(turn.feed.rows, turn.feed.in_order(made), turn.feed.y_B, g.version, self.note)
        return turn

    def _made_for_it(self, gan: GAN, g: Player, rows: Sequence[Rows]) -> Any:
        for of_d in rows:
            turn = gan.d_turn(Batch(of_d))
            images = turn.feed.in_order(fakes_for(turn, g.network(), self.d_parts))
            self.fakes.send(of_d, images, turn.feed.y_B, g.version, self.note)
        return gan.g_turn(Batch(self._g_rows(rows[-1])))

    def _g_rows(self, rows: Rows) -> Rows:
        """This rank's share of G's own batch, which may be larger or smaller than D's."""
        if self.pace.g_batch is None:
            return rows
        return Rows(rows.step, *self.own.share(self.pace.g_batch), self.pace.g_batch)

    def _follow_until(self, version: int, all_of_them: bool = True) -> None:
        seconds = _take(
            self.states, self._follow, lambda: self.opponent.version >= version, self.pace, "D", all_of_them
        )
        self.lag_record.record_wait(seconds)

    def _follow(self, message: Message) -> None:
        self.heed(message.note, message.version)
        self.opponent.follow(message.data, message.version)


class DiscriminatorSide(_Side):
    """buffer: of the fakes that have come. fakes: from the ranks of G; states: to those that this rank serves."""

    def __init__(
        self, buffer: Buffer, fakes: FakesReceiver, states: Sequence[SendEnd], pace: LagBound, own: World = ALONE
    ) -> None:
        super().__init__(pace, pace.age, own)
        self.buffer, self.fakes, self.states = buffer, fakes, states
        self._num_taken = 0

    def step(self, gan: GAN, reals: Sequence[Batch]) -> Update:
        """D's turns, one for each batch; then its state is sent."""
        d = gan.d
        assert isinstance(d, Player)
        t = d.version // self.pace.k
        for real in reals:
            self._await_fakes(t)
            drawn = self.buffer.draw(real.rows.count, real.rows.step)
            lags = [max(0, t - version) for version in drawn.versions]
            self.lag_record.lags.update(lags)
            self.lag_record.used.append(self._num_taken)
            version, device = max(drawn.versions), d.strategy.device(d.net)
            turn = gan.d_turn(real).with_fakes((drawn.images.to(device),), version)
            if drawn.y_B is not None:
                turn = turn.with_labels(drawn.y_B.to(device))
            self.damped(d, max(lags))
            update = d.update(turn, against=_Elsewhere(version))
            self.played(d, update)
        self.publish(d)
        return update

    def publish(self, d: Player) -> None:
        """Send D as it is now. Every rank of D comes here: its weights may lie in pieces."""
        data = packed(d.strategy.weights(d.net)).cpu()
        for post in self.states:
            post.send(Message(d.version, data, self.note))

    def _await_fakes(self, step: int) -> None:
        """Take in what has come, and wait for fakes of that step less the bound; without reuse for this turn's own."""
        before, asked = self._num_taken, self.asked

        def has_come() -> bool:
            if asked is not None:
                return self._num_taken >= asked
            if not self.pace.reuse:
                return self._num_taken > before
            return self.buffer.newest is not None and self.buffer.newest >= step - self.bound

        all_of_them = self.pace.reuse and asked is None
        self.lag_record.record_wait(_take(self.fakes, self._put, has_come, self.pace, "G", all_of_them))

    def _put(self, come: FakesMessage) -> None:
        self._num_taken += 1
        self.heed(come.note, come.version)
        self.buffer.put(come.images, come.y_B, come.version)


@dataclass(frozen=True)
class _Elsewhere:
    """The generator whose fakes are here already."""

    version: int
    module: Any = None
    mixes: bool = False

    def network(self) -> _Elsewhere:
        return self

    def __call__(self, *inputs: Tensor | None) -> Any:
        raise AssertionError("the generator is on other ranks: its fakes come with the turn")

    def frozen(self) -> AbstractContextManager[None]:
        return nullcontext()


class _Source(Protocol[Found]):
    def receive(self, wait_s: float) -> Found | None: ...


def _take(
    inbox: _Source[Found],
    act: Callable[[Found], None],
    has_come: Callable[[], bool],
    pace: LagBound,
    who: str,
    all_of_them: bool = True,
) -> float:
    """Act on what is there, then on what comes until `has_come`; the seconds waited."""
    while (all_of_them or not has_come()) and (found := inbox.receive(0.0)) is not None:
        act(found)
    began = time.monotonic()
    while not has_come():
        if (found := inbox.receive(_LOOK_S)) is not None:
            act(found)
        elif pace.stopped() or time.monotonic() - began > pace.timeout_s:
            raise RankError(f"{who}: nothing has come for {time.monotonic() - began:.0f} s, expected its next message")
    return time.monotonic() - began
