"""The rank that holds both players: it applies what its workers send, and sends them what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import cycle

from torch import Tensor

from paragan.core.errors import RankError
from paragan.core.roles import Roles
from paragan.core.types import Batch, Report, Rows, Side, Update, take_batches
from paragan.distributed.transports.link import Message
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import packed
from paragan.schemes._lag import LagRecord
from paragan.schemes.parameter_server.links import StalenessBound, links
from paragan.schemes.parameter_server.messages import NetworkChange

_LOOK_S = 0.001  # at one worker, while another may have sent


class Server:
    """Steps of one game: each makes one of every worker, and of faster ones perhaps some more.

    For the record, in steps: `ages`, how many of all workers were made since the weights were sent that a gradient is
    of; `ahead`, how far its worker was before the slowest.
    """

    def __init__(self, gan: GAN, roles: Roles, staleness: int) -> None:
        assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
        self.gan, self.roles, self.pace = gan, roles, StalenessBound.of(gan, staleness)
        self.lag_records: Mapping[str, LagRecord] = {}  # delays are the workers'
        self.ages: Counter[int] = Counter()
        self.ahead: Counter[int] = Counter()
        self._players = {Side.G: gan.g, Side.D: gan.d}
        self._links = links(roles, gan, self.pace.room)
        self._workers = range(len(self._links))
        # turns of either side that have been applied, by worker
        self._made = {side: [per * gan.clock.step for _ in self._workers] for side, per in self.pace.per_step.items()}
        self._turns = [cycle(self.pace.order) for _ in self._workers]  # whose gradients come next
        self._owed = [(i, side) for i in self._workers for side in (Side.D, Side.G)]
        self._held: dict[int, NetworkChange] = {}  # of the turn under way, where all are waited for
        self._packed: dict[Side, Tensor] = {}  # weights as they are now
        self._updates: dict[Side, Update] = {}  # the newest of this step
        self._take = self._one_by_one if staleness else self._all_at_once
        self._answer()

    def step(self, batches: Iterator[Batch]) -> Report:
        (*_, rows) = [real.rows for real in take_batches(batches, self.gan.d.updates_per_step)]
        self._updates, step = {}, self.gan.clock.step + 1
        while any(self._floor(side) < per * step for side, per in self.pace.per_step.items()):
            i, message = self._next()
            side = next(self._turns[i])
            self._record(i, side, message)
            self._take(i, side, NetworkChange.read(message.data, self._players[side].net), rows)
            self._answer()
        return self.gan.report(rows.total, self._updates)

    def quiesce(self) -> None:
        """A step ends with all that was sent for it, and nobody has begun another where all ranks come here."""

    def close(self) -> None:
        """Say that nothing comes any more, then hear it: in this order nobody waits for one who waits."""
        for post, _ in self._links:
            post.close()
        for _, inbox in self._links:
            inbox.close()

    def _one_by_one(self, i: int, side: Side, moved: NetworkChange, rows: Rows) -> None:
        """An update by this worker's rows alone: by their mean."""
        mine = rows.shares(len(self._workers))[i]
        self._apply(side, moved if mine.count == rows.total else moved.times(rows.total / mine.count), mine)
        self._made[side][i] += 1
        self._owed.append((i, side))

    def _all_at_once(self, i: int, side: Side, moved: NetworkChange, rows: Rows) -> None:
        """One update by the whole batch, when the last worker's share is here."""
        self._held[i] = moved
        if len(self._held) < len(self._workers):
            return
        self._apply(side, NetworkChange.total([self._held[j] for j in self._workers]), rows)
        self._held = {}
        for j in self._workers:
            self._made[side][j] += 1
            self._owed.append((j, side))

    def _apply(self, side: Side, moved: NetworkChange, rows: Rows) -> None:
        player = self._players[side]
        norm = moved.apply(player, rows.count)
        self._packed.pop(side, None)
        self._updates[side] = Update({"gradient_norm": norm}, rows, player.version)

    def _answer(self) -> None:
        """Newer weights to whoever has sent gradients, once they contain what its next turn asks for."""
        for i, side in list(self._owed):
            floor, player = self._floor(side), self._players[side]
            if floor < self.pace.least(side, self._made[side][i]):
                continue
            if side not in self._packed:
                self._packed[side] = packed(player.strategy.weights(player.net)).cpu()
            self._links[i][0].send(Message(player.version, self._packed[side], floor))
            self._owed.remove((i, side))

    def _floor(self, side: Side) -> int:
        """Turns that every worker has made."""
        return min(self._made[side])

    def _record(self, i: int, side: Side, message: Message) -> None:
        made, floor = self._made[side][i], self._floor(side)
        assert message.note >= self.pace.least(side, made), "gradients of older weights than the bound allows"
        self.ages[self.pace.steps(side, floor - message.note)] += 1
        self.ahead[self.pace.steps(side, made - floor)] += 1

    def _next(self) -> tuple[int, Message]:
        """Who has sent something, and what."""
        began = time.monotonic()
        slowest = min(self._workers, key=lambda i: (i in self._held, self._made[Side.D][i], self._made[Side.G][i]))
        while time.monotonic() - began < self.roles.timeout_s:
            for i in (*self._workers, slowest):
                message = self._receive(i, _LOOK_S if i == slowest else 0.0)
                if message is not None:
                    return i, message
        raise RankError(
            f"the worker on rank {slowest + 1}: nothing has come for {self.roles.timeout_s:.0f} s, expected gradients"
        )

    def _receive(self, i: int, wait_s: float) -> Message | None:
        try:
            return self._links[i][1].receive(wait_s)
        except RankError as error:
            raise RankError(
                f"the worker on rank {i + 1} is gone or silent: {str(error.__cause__ or error)[:200]}"
            ) from error
