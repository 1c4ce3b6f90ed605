"""Every player on ranks of its own, any number of players; each reads states of the others, S steps old.

A player sends its state to the ranks of those whose turns call it, and waits for the states that
its turn needs, never for newer ones: runs repeat, and at S = 0 this is `synchronous`. D and further
players generate their fakes with G's state. `asynchronous` is for G and D: it sends fakes, not G.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError, RankError
from paragan.core.option_types import Count, Natural
from paragan.core.phases import Phase, phase
from paragan.core.roles import Roles, colocated_roles, group_roles
from paragan.core.source import TensorSpec
from paragan.core.traffic import Collective
from paragan.core.types import Batch, Report, Side, Update
from paragan.distributed.transports.gloo_link import GlooReceiver, GlooSender, connect_pair
from paragan.distributed.transports.link import Message
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.remote_player import RemotePlayer
from paragan.game.snapshot import Snapshot, packed
from paragan.schemes import synchronous
from paragan.schemes._concurrent import ConcurrentScheme
from paragan.schemes._lag import LagRecord

_POLL_S = 0.1
_SESSION_NUMBERS = itertools.count()  # equal on all ranks, which open their sessions in one order


@dataclass(frozen=True)
class Options:
    """Ranks of each player, and the age of the states that it reads."""

    ranks: dict[str, Count] = field(default_factory=dict)
    """Number of ranks of each player by name, G first: {g: 1, d: 1, fake_score: 2}; not used in one
    process, which updates the players in turn."""
    staleness: Natural = 0
    """Steps that the states of other players are old."""


class Scheme(ConcurrentScheme["_Session"]):
    """Order of `synchronous`, with each player on its ranks, S steps ahead of what it reads."""

    any_players = True

    def __init__(self, options: Options = Options()) -> None:
        super().__init__()
        self.options = options

    def roles(self, world: World, timeout_s: float) -> Roles:
        """Assign ranks to the players, in order. Collective.

        Raises `ConfigError` for another number of ranks, or an invalid name.
        """
        counts = self.options.ranks
        sides = [_side(name) for name in counts]
        if world.size == 1:
            self._roles = colocated_roles(world, timeout_s)
        elif sum(counts.values()) == world.size and next(iter(counts)) == "g":
            self._roles = group_roles(world, dict(zip(sides, counts.values(), strict=True)), timeout_s)
        else:
            raise ConfigError(
                f"scheme.ranks={dict(counts)} does not fit {world.size} ranks; give each player a number, g first, "
                f"whose sum is {world.size}"
            )
        return self._roles

    def assign(self, num_ranks: int) -> Mapping[Side, Sequence[int]]:
        counts = self.options.ranks
        if num_ranks == 1 or sum(counts.values()) != num_ranks:
            return super().assign(num_ranks)
        ends = itertools.accumulate(counts.values())
        return {_side(name): range(end - counts[name], end) for name, end in zip(counts, ends, strict=True)}

    def refuse(self, gan: GAN, tensors: Mapping[str, TensorSpec]) -> None:
        """Raise `ConfigError` if a player has no ranks, or ranks have no player."""
        names = [side.value for side in gan.slots]
        if self._roles is not None and self._roles.is_split and set(names) != set(self.options.ranks):
            given = ", ".join(self.options.ranks)
            raise ConfigError(f"scheme.ranks has {given}, and the players are {', '.join(names)}; give ranks to each")

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Run the turns of this rank's player."""
        roles = self._roles or colocated_roles(ALONE)
        if not roles.is_split:
            return synchronous.step(gan, batches)
        session = self._session_of(gan, lambda: _Session(gan, roles, self.options.staleness))
        return session.step(list(islice(batches, gan.batches_per_step)))


class _Session:
    """Steps of the player of this rank. Versions of states are numbers of batches."""

    def __init__(self, gan: GAN, roles: Roles, staleness: int) -> None:
        self.gan = gan
        self.side = roles.sides[0]
        self.lag_records: dict[str, LagRecord] = {}
        self._order = [*gan.critics, Side.G]
        self._num = gan.batches_per_step
        self._lag = staleness * self._num
        self._timeout_s = roles.timeout_s
        self._senders: dict[Side, list[GlooSender]] = {}
        self._receivers: dict[Side, GlooReceiver] = {}
        number = next(_SESSION_NUMBERS)
        for reader, read in _pairs(gan):
            for here, there in enumerate(roles.sources(reader, read)):
                ends = _Ends(roles, f"link/{number}/{read.value}/{there}/{reader.value}/{here}")
                if self.side is read and roles.batch_world.rank == there:
                    self._senders.setdefault(reader, []).append(ends.sender())
                elif self.side is reader and roles.batch_world.rank == here:
                    room = (2 * staleness + 3) * self._num + 1
                    self._receivers[read] = ends.receiver(self._snapshot(read).num_bytes, room)
        start = gan.clock.step * self._num
        self._send_to(self._readers, start)
        for side in self._receivers:
            self._snapshot(side).forget()
            self._wait_for(side, start)

    def step(self, reals: Sequence[Batch]) -> Report:
        """Run the turns of a step, and send the states that others need."""
        first = self.gan.clock.step * self._num
        update = self._g_update(reals, first) if self.side is Side.G else self._updates(reals, first)
        return self.gan.report(reals[-1].rows.total, {} if update is None else {self.side: update})

    def _g_update(self, reals: Sequence[Batch], first: int) -> Update:
        for side in self._receivers:
            self._wait_for(side, first + self._num - self._lag)
        update = self.gan.g.update(self.gan.g_turn(reals[-1]), against=self.gan.d)
        self._send_to(self._readers, first + self._num)
        return update

    def _updates(self, reals: Sequence[Batch], first: int) -> Update | None:
        """Update D or a further player on its batches; other such players need the state after each."""
        update = None
        for number, real in enumerate(reals):
            if self.side in self.gan.critics_of_batch(number):
                for side in self._receivers:
                    is_before = self._order.index(side) < self._order.index(self.side)
                    version = first if side is Side.G else first + number + is_before
                    self._wait_for(side, version - self._lag)
                update = self.gan.slots[self.side].update(self.gan.turn(self.side, real), against=self.gan.g)
            is_last = number == self._num - 1
            self._send_to([side for side in self._readers if is_last or side is not Side.G], first + number + 1)
        return update

    @property
    def _readers(self) -> list[Side]:
        """Players that call the one of this rank."""
        return [reader for reader, read in _pairs(self.gan) if read is self.side]

    @phase(Phase.COMMUNICATION)
    def _wait_for(self, side: Side, version: int) -> None:
        """Receive states of a player until one has at least this version."""
        snapshot = self._snapshot(side)
        began = time.monotonic()
        while snapshot.version < version:
            message = self._receivers[side].receive(_POLL_S)
            if message is not None:
                snapshot.follow(message.data, message.version)
            elif time.monotonic() - began > self._timeout_s:
                raise RankError(f"no message from {side.value} for {self._timeout_s:g} s")

    @phase(Phase.COMMUNICATION)
    def _send_to(self, readers: Sequence[Side], version: int) -> None:
        """Send the state of this rank's player. Collective over the ranks of the player."""
        if not readers:
            return
        player = self.gan.slots[self.side]
        assert isinstance(player, Player)
        data = packed(player.strategy.weights(player.net)).cpu()
        for sender in itertools.chain.from_iterable(self._senders.get(reader, []) for reader in readers):
            sender.send(Message(version, data))

    def _snapshot(self, side: Side) -> Snapshot:
        slot = self.gan.slots[side]
        assert isinstance(slot, RemotePlayer) and slot.snapshot is not None
        return slot.snapshot

    def quiesce(self) -> None:
        """Do nothing: between steps no player is ahead of the others' steps."""

    def close(self) -> None:
        """Close the senders, then the receivers: this order avoids deadlocks."""
        for sender in itertools.chain.from_iterable(self._senders.values()):
            sender.close()
        for receiver in self._receivers.values():
            receiver.close()


def _side(name: str) -> Side:
    try:
        return Side(name)
    except ValueError:
        problem = f"scheme.ranks: {name!r} is not the name of a player"
        raise ConfigError(f"{problem}; use g, d and the names in players") from None


def _pairs(gan: GAN) -> list[tuple[Side, Side]]:
    """Return (reader, read) for each player and each other one whose network its turns call."""
    found = []
    for reader in gan.slots:
        found += [(reader, read) for read in gan.called_by(reader)]
    return found


@dataclass(frozen=True)
class _Ends:
    """Ends of one link, of which this rank opens one."""

    roles: Roles
    name: str

    def sender(self) -> GlooSender:
        count = partial(self.roles.world.count_bytes, "states", collective=Collective.LINK)
        return GlooSender(self._group(0), 1, timeout_s=self.roles.timeout_s, count_bytes=count)

    def receiver(self, max_bytes: int, room: int) -> GlooReceiver:
        return GlooReceiver(self._group(1), 0, max_bytes, room, self.roles.timeout_s)

    def _group(self, rank: int) -> Any:
        return connect_pair(self.roles.world.store, self.name, rank, self.roles.timeout_s)
