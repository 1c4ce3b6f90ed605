"""A rank that plays both players' turns on copies of theirs, for the server to step by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, cycle

from paragan.core.errors import RankError
from paragan.core.protocols import Opponent, Turn
from paragan.core.roles import Roles
from paragan.core.types import Batch, Report, Side, Update, take_batches
from paragan.distributed.transports.link import Message
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes._lag import LagRecord
from paragan.schemes.parameter_server.links import StalenessBound, links
from paragan.schemes.parameter_server.messages import become, moved

_LOOK_S = 0.1  # how often somebody who waits looks at the time
_LONGER_S = 5.0  # than the server, which knows whom it waits for and is to be the first to tell


class Worker:
    """Steps of one game on this rank's rows.

    The players here only play. Their `version` counts turns of this rank, so that what is due every so many updates is
    due on all workers at once, and as often as without a server. told: lags, in steps, of either network a turn uses.
    """

    def __init__(self, gan: GAN, roles: Roles, staleness: int) -> None:
        assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
        self.gan, self.roles, self.pace = gan, roles, StalenessBound.of(gan, staleness)
        self.lag_records: Mapping[str, LagRecord] = {side.value: LagRecord() for side in Side}
        self._players = {Side.G: gan.g, Side.D: gan.d}
        for side, player in self._players.items():
            player.version = self.pace.per_step[side] * gan.clock.step
        ((self._post, self._inbox),) = links(roles, gan, self.pace.room)
        self._coming = chain((Side.D, Side.G), cycle(self.pace.order))  # an answer to each turn, in their order
        self._num_coming = 2
        self._floors: dict[Side, int] = {}  # turns of every worker that the weights here contain
        self._versions: dict[Side, int] = {}  # of the server's players, as they are here
        self.quiesce()

    def step(self, batches: Iterator[Batch]) -> Report:
        for real in take_batches(batches, self.gan.d.updates_per_step):
            d = self._play(Side.D, self.gan.d_turn(real), against=self.gan.g)
        g = self._play(Side.G, self.gan.g_turn(real), against=self.gan.d)
        return self.gan.observe(d, g)

    def quiesce(self) -> None:
        """Every turn has been answered."""
        self._follow_until(lambda: not self._num_coming)

    def close(self) -> None:
        """Say that nothing comes any more, then hear it: in this order nobody waits for one who waits."""
        self._post.close()
        self._inbox.close()

    def _play(self, side: Side, turn: Turn, against: Opponent) -> Update:
        player, told = self._players[side], self.lag_records[side.value]
        told.record_wait(self._follow_until(self._may_play))
        behind = [self.pace.steps(s, p.version - self._floors[s]) for s, p in self._players.items()]
        told.lags[max(behind)] += 1
        told.used.append(self._versions[side])
        played = player.compute_gradients(turn, against)
        self._post.send(Message(self._versions[side], moved(player.net), self._floors[side]))
        self._num_coming += 1
        player.net.zero_grad()
        player.version += 1
        update = player.summarize(played)
        # of these rows alone; the norm of what is applied is the server's to tell
        return replace(
            update, scalars={name: value for name, value in update.scalars.items() if name != "gradient_norm"}
        )

    def _may_play(self) -> bool:
        return all(self._floors[side] >= self.pace.least(side, p.version) for side, p in self._players.items())

    def _follow_until(self, ready: Callable[[], bool]) -> float:
        """Take in what has come, and wait for what has to; the seconds waited."""
        while (message := self._inbox.receive(0.0)) is not None:
            self._follow(message)
        began = time.monotonic()
        while not ready():
            if (message := self._receive()) is not None:
                self._follow(message)
            elif (waited := time.monotonic() - began) > self.roles.timeout_s + _LONGER_S:
                raise RankError(f"the server on rank 0: nothing has come for {waited:.0f} s, expected newer weights")
        return time.monotonic() - began

    def _receive(self) -> Message | None:
        try:
            return self._inbox.receive(_LOOK_S)
        except RankError as error:
            raise RankError(f"the server on rank 0 is gone or silent: {str(error.__cause__ or error)[:200]}") from error

    def _follow(self, message: Message) -> None:
        side = next(self._coming)
        become(self._players[side].net, message.data)
        self._floors[side], self._versions[side] = message.note, message.version
        self._num_coming -= 1
