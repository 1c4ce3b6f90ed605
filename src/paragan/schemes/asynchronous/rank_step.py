"""Players on separate ranks: the step of this rank's player.

G and D that train at the same time (`RankStep`), or any number of players that take turns (`TurnStep`): `synchronous`,
bit for bit. In turns a player sends its state to the ranks of those whose turns call it, and waits for the states that
its turn needs. D and extra players generate their fakes with G's state; players that do not call one another train at
the same time.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paragan.core.errors import RankError
from paragan.core.phases import Phase, phase
from paragan.core.roles import Roles
from paragan.core.types import Batch, Report, Side, Update
from paragan.distributed.links.gloo_link import GlooReceiver, GlooSender
from paragan.distributed.links.link import Message
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import RemotePlayer, Snapshot, packed
from paragan.schemes.asynchronous.fakes import (
    FakesReceiver,
    FakesSender,
    bound_of_messages,
    empty_rows,
    overlapping_ranks,
)
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.two_players import DiscriminatorStep, GeneratorStep
from paragan.schemes.base.concurrent import StalenessLog
from paragan.schemes.base.rank_links import RankLinks

_POLL_S = 0.1


class RankStep:
    """Steps of one game on this rank. first: this rank's rows of D's first batch."""

    def __init__(
        self,
        gan: GAN,
        roles: Roles,
        first: Batch,
        buffer: Buffer,
        limits: StalenessLimit,
        orders: Mapping[Side, Sequence[int]],
    ) -> None:
        self.gan = gan
        self.side = roles.sides[0]
        limits = replace(limits, order=orders.get(self.side), timeout_s=roles.timeout_s)
        g_batch = limits.options.g_batch
        total = first.rows.total if g_batch is None or not limits.options.reuse else g_batch
        self.player_step: GeneratorStep | DiscriminatorStep
        if isinstance(gan.d, Player):
            like = empty_rows(gan, first)
            self._links = _Links(roles, limits, total, fakes_bytes=bound_of_messages(like, total))
            receivers = [self._links.receivers[g_rank] for g_rank in sorted(self._links.receivers)]
            fakes = FakesReceiver(receivers, like, limits.rounds_fakes)
            self.player_step = DiscriminatorStep(buffer, fakes, list(self._links.senders.values()), limits)
            self.player_step.publish(gan.d)  # its current state, perhaps that of a checkpoint
        else:
            assert isinstance(gan.d, RemotePlayer) and gan.d.snapshot is not None
            gan.d.snapshot.forget()  # an earlier session's versions may be higher, after a return to a checkpoint
            self._links = _Links(roles, limits, total, state_bytes=gan.d.snapshot.num_bytes)
            senders_to_d = [self._links.senders.get(d_rank) for d_rank in range(len(roles.ranks[Side.D]))]
            sender = FakesSender(senders_to_d, limits.rounds_fakes)
            (states,) = self._links.receivers.values()  # one rank of D is enough: all have the same state
            self.player_step = GeneratorStep(
                opponent=gan.d.snapshot,
                fakes=sender,
                states=states,
                limits=limits,
                world=roles.batch_world,
                d_parts=gan.d.policy.micro_batches,
            )
            self.player_step.wait_for_d(gan.g.version)

    @property
    def staleness_logs(self) -> dict[str, StalenessLog]:
        return {self.side.value: self.player_step.log}

    def step(self, reals: list[Batch]) -> Report:
        """Run the step of this rank's player, G or D."""
        return self.gan.report(reals[-1].rows.total, {self.side: self.player_step.step(self.gan, reals)})

    def quiesce(self) -> None:
        """Update the snapshot of D on G's ranks, exactly. Collective over D's ranks."""
        if isinstance(self.player_step, GeneratorStep):
            self.player_step.wait_for_d(self.gan.g.version)
        elif isinstance(self.gan.d, Player):
            self.player_step.publish_exactly(self.gan.d)

    def close(self) -> None:
        """Close the links."""
        self._links.close()


class _Links(RankLinks):
    """Link ends of this rank, by the other end's rank in its role: G sends fakes and receives states, D the reverse.

    fakes_bytes, state_bytes: largest message that this rank receives.
    """

    def __init__(
        self, roles: Roles, limits: StalenessLimit, total: int, *, fakes_bytes: int = 0, state_bytes: int = 0
    ) -> None:
        super().__init__(roles)
        self.max_in_flight = limits.max_in_flight
        self.senders: dict[int, GlooSender] = {}
        self.receivers: dict[int, GlooReceiver] = {}
        # All ranks open all links in this one order: an open end waits for the other, and none waits in a cycle.
        for g_rank, d_rank in overlapping_ranks(total, len(roles.ranks[Side.G]), len(roles.ranks[Side.D])):
            self._open(f"fakes/{g_rank}/{d_rank}", Side.G, g_rank, d_rank, fakes_bytes)
        for g_rank, d_rank in enumerate(roles.sources(Side.G, Side.D)):
            self._open(f"states/{g_rank}", Side.D, g_rank, d_rank, state_bytes)

    def _open(self, name: str, sender: Side, g_rank: int, d_rank: int, max_bytes: int) -> None:
        """Open the link between a rank of G and one of D, if this is one of them."""
        side = self.roles.sides[0]
        local, other = (g_rank, d_rank) if side is Side.G else (d_rank, g_rank)
        if self.roles.batch_world.rank != local:
            return
        if side is sender:
            self.senders[other] = self.open_sender(name)
        else:
            self.receivers[other] = self.open_receiver(name, max_bytes, self.max_in_flight)


class TurnStep:
    """Steps of the player of this rank. Versions of states are numbers of batches."""

    def __init__(self, gan: GAN, roles: Roles) -> None:
        self.gan = gan
        self.side = roles.sides[0]
        self.staleness_logs: Mapping[str, StalenessLog] = {}  # every state is the newest
        self._order = [*gan.critics, Side.G]  # of the turns for one batch, as in `synchronous`
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
                # more states than the sender can be ahead by: a full buffer would block it, as a failed reader does
                room = 3 * self._num_batches + 1
                self._receivers[called] = self._links.open_receiver(name, self._snapshot(called).num_bytes, room)

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
                # G is updated at the end of a step; of the others, those before this one have trained on the batch
                for side in self._receivers:
                    is_before = self._order.index(side) < self._order.index(self.side)
                    self._wait_for(side, first if side is Side.G else first + number + is_before)
                update = self.gan.slots[self.side].update(self.gan.turn(self.side, real), against=self.gan.g)
            is_last = number == self._num_batches - 1  # G reads the others at the end of the step alone
            self._send_to([side for side in self._senders if is_last or side is not Side.G], first + number + 1)
        return update

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
