"""Players that take turns, any number of them: `synchronous`, bit for bit, also with players on separate ranks.

On separate ranks a player sends its state to the ranks of those whose turns call it, and waits for the states that its
turn needs. D and extra players generate their fakes with G's state; players that do not call one another train at the
same time.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from paragan.core.capabilities import ALL, Capability
from paragan.core.errors import ConfigError, RankError
from paragan.core.phases import Phase, phase
from paragan.core.roles import Roles
from paragan.core.source import TensorSpec
from paragan.core.types import Batch, Report, Side, Update
from paragan.distributed.links.gloo_link import GlooReceiver, GlooSender
from paragan.distributed.links.link import Message
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import RemotePlayer, Snapshot, packed
from paragan.schemes import synchronous
from paragan.schemes.asynchronous.players_on_ranks import PlayersOnRanks
from paragan.schemes.base.concurrent import StalenessLog
from paragan.schemes.base.rank_links import RankLinks

_POLL_S = 0.1
_NOT_IN_TURNS = ("g_batch", "cached", "state_dtype", "fakes_dtype", "order")


class PlayersInTurns(PlayersOnRanks["TurnStep"]):
    """Players one after the other, each against the newest state of the others."""

    sends_states = True

    def start_note(self, num_ranks: int) -> str | None:
        if num_ranks > 1:
            return None
        return "ranks     one process: players update in turn; set devices and scheme.ranks"

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Those of `synchronous`, less the state that another rank would need on separate ranks."""
        capabilities = ALL - {Capability.GRID}
        return capabilities - {Capability.BALANCER, Capability.AUGMENT_STATE} if self.is_split else capabilities

    def refuse(self, gan: GAN, tensors: Mapping[str, TensorSpec]) -> None:
        super().refuse(gan, tensors)
        defaults = type(self.options)()
        for name in _NOT_IN_TURNS:
            if getattr(self.options, name) != getattr(defaults, name):
                raise ConfigError(
                    f"scheme.{name} does not apply to players that take turns (scheme.staleness=0 with "
                    f"scheme.reuse=false); leave it out, or change one of these"
                )

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Run one step: of all players in one process, or of this rank's player in the open session or a new one."""
        if self._roles is None or not self._roles.is_split:
            return synchronous.step(gan, batches)
        session = self._session_of(gan, partial(TurnStep, gan, self._roles))
        return session.step(list(islice(batches, gan.batches_per_step)))


class TurnStep:
    """Steps of the player of this rank. Version n of a state is that after the turns on the run's first n batches."""

    def __init__(self, gan: GAN, roles: Roles) -> None:
        self.gan = gan
        self.side = roles.sides[0]
        self.staleness_logs: Mapping[str, StalenessLog] = {}  # every state is the newest
        self._order = list(gan.critics)  # of the turns on one batch, as in `synchronous`
        self._num_batches = gan.batches_per_step
        self._timeout_s = roles.timeout_s
        readers = [side for side in gan.slots if self.side in gan.called_by(side)]
        self._senders: dict[Side, list[GlooSender]] = {side: [] for side in readers}
        self._receivers: dict[Side, GlooReceiver] = {}
        self._links = RankLinks(roles)
        for reader in gan.slots:
            for called in gan.called_by(reader):
                self._open(roles, reader, called)
        start = gan.clock.step * self._num_batches
        self._send_to(readers, start)
        for side in self._receivers:  # after the send, for which the others wait in the same place
            self._snapshot(side).forget()
            self._wait_for(side, start)

    def _open(self, roles: Roles, reader: Side, called: Side) -> None:
        """Open this rank's ends of the links from a player that is called to one that reads its states."""
        rank = roles.batch_world.rank
        for target, source in enumerate(roles.sources(reader, called)):
            name = f"states/{called.value}/{source}/{reader.value}/{target}"
            if self.side is called and rank == source:
                self._senders[reader].append(self._links.open_sender(name))
            elif self.side is reader and rank == target:
                # states of three steps: the sender is at most one step ahead of a player whose states others need. It
                # waits for another player when these are in flight; if that one has failed, until the time-out
                max_in_flight = 3 * self._num_batches + 1
                self._receivers[called] = self._links.open_receiver(
                    name, self._snapshot(called).num_bytes, max_in_flight
                )

    def step(self, reals: Sequence[Batch]) -> Report:
        """Run the turns of a step, and send the states that others need."""
        first = self.gan.clock.step * self._num_batches
        update = self._update_g(reals, first) if self.side is Side.G else self._update_critic(reals, first)
        return self.gan.report(reals[-1].rows.total, {} if update is None else {self.side: update})

    def _update_g(self, reals: Sequence[Batch], first: int) -> Update:
        for side in self._receivers:
            self._wait_for(side, first + self._num_batches)
        update = self.gan.g.update(self.gan.g_turn(reals[-1]), against=self.gan.d)
        self._send_to(list(self._senders), first + self._num_batches)
        return update

    def _update_critic(self, reals: Sequence[Batch], first: int) -> Update | None:
        """Update D or an extra player on its batches; other such players need the state after each."""
        update = None
        for number, real in enumerate(reals):
            if self.side in self.gan.critics_of_batch(number):
                for side in self._receivers:
                    self._wait_for(side, self._version_before(side, first, number))
                update = self.gan.slots[self.side].update(self.gan.turn(self.side, real), against=self.gan.g)
            is_last = number == self._num_batches - 1  # G reads the others at the end of the step alone
            self._send_to([side for side in self._senders if is_last or side is not Side.G], first + number + 1)
        return update

    def _version_before(self, side: Side, first: int, number: int) -> int:
        """Return the version of another player at this critic's turn on a batch of the step."""
        if side is Side.G:
            return first  # its turn ends the step
        has_had_its_turn = self._order.index(side) < self._order.index(self.side)
        return first + number + 1 if has_had_its_turn else first + number

    @phase(Phase.COMMUNICATION)
    def _wait_for(self, side: Side, version: int) -> None:
        """Receive states of a player until one has at least this version."""
        snapshot = self._snapshot(side)
        began = time.monotonic()
        while snapshot.version < version:
            message = self._receivers[side].receive(_POLL_S)
            if message is not None:
                snapshot.update(message.data, message.version)
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
        for reader in readers:
            for sender in self._senders[reader]:
                sender.send(Message(version=version, data=data))

    def _snapshot(self, side: Side) -> Snapshot:
        slot = self.gan.slots[side]
        assert isinstance(slot, RemotePlayer) and slot.snapshot is not None
        return slot.snapshot

    def quiesce(self) -> None:
        """Do nothing: between steps no player is ahead of the others' steps."""

    def close(self) -> None:
        """Close the links."""
        self._links.close()
