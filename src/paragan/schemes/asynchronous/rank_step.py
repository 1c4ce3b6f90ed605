"""Half of an asynchronous step on this rank, with links to the ranks of the other player.

A link is a gloo group of its two ends; all ranks create theirs in one order, which avoids
deadlocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from paragan.core.roles import Roles
from paragan.core.traffic import Collective
from paragan.core.types import Batch, Report, Side
from paragan.distributed.transports.gloo_link import GlooReceiver, GlooSender, connect_pair
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.remote_player import RemotePlayer
from paragan.schemes._lag import LagBound, LagRecord
from paragan.schemes.asynchronous.fakes import (
    FakesReceiver,
    FakesSender,
    bound_of_messages,
    empty_rows,
    overlapping_ranks,
)
from paragan.schemes.asynchronous.half_steps import DiscriminatorHalf, GeneratorHalf

_SESSION_NUMBERS = itertools.count()  # equal on all ranks, which open their sessions in one order


class RankStep:
    """Steps of one game on this rank. first: this rank's rows of D's first batch."""

    def __init__(
        self,
        gan: GAN,
        roles: Roles,
        first: Batch,
        buffer: Buffer,
        limits: LagBound,
        orders: Mapping[Side, Sequence[int]],
    ) -> None:
        self.gan = gan
        self.side = roles.sides[0]
        limits = replace(limits, order=orders.get(self.side), timeout_s=roles.timeout_s)
        total = first.rows.total if limits.g_batch is None or not limits.reuse else limits.g_batch
        self.half: GeneratorHalf | DiscriminatorHalf
        if isinstance(gan.d, Player):
            like = empty_rows(gan, first)
            links = _Links(roles, limits, total, bound_of_messages(like, total), 0)
            receivers = [links.receivers[i] for i in sorted(links.receivers)]
            fakes = FakesReceiver(receivers, like, limits.rounds_fakes)
            senders = list(links.senders.values())
            self.half = DiscriminatorHalf(buffer, fakes, senders, limits, roles.batch_world)
            self.half.publish(gan.d)  # its current state, perhaps that of a checkpoint
        else:
            assert isinstance(gan.d, RemotePlayer) and gan.d.snapshot is not None
            gan.d.snapshot.forget()
            links = _Links(roles, limits, total, 0, gan.d.snapshot.num_bytes)
            senders_to_d = [links.senders.get(j) for j in range(len(roles.ranks[Side.D]))]
            sender = FakesSender(senders_to_d, limits.rounds_fakes)
            (states,) = links.receivers.values()
            d_parts = gan.d.policy.micro_batches
            self.half = GeneratorHalf(gan.d.snapshot, sender, states, limits, roles.batch_world, d_parts)
            self.half.wait_for_d(gan.g.version)
        self._ends: list[GlooSender | GlooReceiver] = [*links.senders.values(), *links.receivers.values()]

    @property
    def lag_records(self) -> dict[str, LagRecord]:
        return {self.side.value: self.half.lag_record}

    def step(self, reals: list[Batch]) -> Report:
        """Run this rank's half of a step, for G or for D."""
        total = reals[-1].rows.total
        if isinstance(self.half, DiscriminatorHalf):
            return self.gan.report(total, {Side.D: self.half.step(self.gan, reals)})
        return self.gan.report(total, {Side.G: self.half.step(self.gan, reals)})

    def quiesce(self) -> None:
        """Update the snapshot of D on G's ranks, exactly. Collective over D's ranks."""
        if isinstance(self.half, GeneratorHalf):
            self.half.wait_for_d(self.gan.g.version)
        elif isinstance(self.gan.d, Player):
            self.half.publish_exactly(self.gan.d)

    def close(self) -> None:
        """Close the senders, then the receivers: this order avoids deadlocks."""
        for end in self._ends:
            end.close()


class _Links:
    """Link ends of this rank, by the other end's rank in its role.

    G sends fakes and receives states, D the reverse. A receiver buffers all messages that the bound
    allows: a link that stalls because its receiver is busy would look like one whose receiver has
    failed.
    """

    def __init__(self, roles: Roles, limits: LagBound, total: int, fakes_bytes: int, state_bytes: int) -> None:
        self.roles = roles
        self.number = next(_SESSION_NUMBERS)
        self.max_in_flight = limits.max_in_flight
        self.senders: dict[int, GlooSender] = {}
        self.receivers: dict[int, GlooReceiver] = {}
        num_g, num_d = (len(roles.ranks[side]) for side in Side)
        for i, j in overlapping_ranks(total, num_g, num_d):
            self._make(f"fakes/{i}/{j}", Side.G, i, j, fakes_bytes)
        for i, j in enumerate(roles.sources(Side.G, Side.D)):
            self._make(f"states/{i}", Side.D, i, j, state_bytes)

    def _make(self, name: str, sender: Side, i: int, j: int, max_bytes: int) -> None:
        """Open the link between rank i of G and rank j of D, if this is one of them."""
        side = self.roles.sides[0]
        if self.roles.batch_world.rank != (i if side is Side.G else j):
            return
        other = j if side is Side.G else i
        timeout_s = self.roles.timeout_s
        key = f"link/{self.number}/{name}"
        group = connect_pair(self.roles.world.store, key, int(side is not sender), timeout_s)
        if side is sender:
            count = partial(self.roles.world.count_bytes, name.partition("/")[0], collective=Collective.LINK)
            self.senders[other] = GlooSender(group, 1, timeout_s=timeout_s, count_bytes=count)
        else:
            self.receivers[other] = GlooReceiver(group, 0, max_bytes, self.max_in_flight, timeout_s)
