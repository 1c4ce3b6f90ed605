"""One side of an asynchronous step on this rank, and links to the ranks where the other player sits.

A link is a gloo group of its two ends; all ranks make theirs in one order, so that nobody waits for one who waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from paragan.core.roles import Roles
from paragan.core.types import Batch, Report, Side
from paragan.distributed.transports.gloo_link import GlooReceiver, GlooSender, pair
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.remote_player import RemotePlayer
from paragan.schemes._lag import LagBound, LagRecord
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender, pairs
from paragan.schemes.asynchronous.sides import DiscriminatorSide, GeneratorSide

_NUMBER = itertools.count()  # of this process's games: all ranks begin them in one order


class RankStep:
    """Steps of one game on this rank. first: the first batch of D's; its rows are this rank's, of those of its role."""

    def __init__(
        self, gan: GAN, roles: Roles, first: Batch, buffer: Buffer, pace: LagBound, orders: Mapping[Side, Sequence[int]]
    ) -> None:
        self.gan, self.here = gan, roles.sides[0]
        pace = replace(pace, order=orders.get(self.here), timeout_s=roles.timeout_s)
        total = first.rows.total if pace.g_batch is None or not pace.reuse else pace.g_batch
        self.side: GeneratorSide | DiscriminatorSide
        if isinstance(gan.d, Player):
            like, labelled = _like(first), bool(gan.prior.num_classes)
            links = _Links(roles, pace, total, like.numel() * like.element_size() + 8, 0)
            inbox = FakesReceiver([links.takes[i] for i in sorted(links.takes)], like, labelled)
            self.side = DiscriminatorSide(buffer, inbox, list(links.sends.values()), pace, roles.batch_world)
            self.side.publish(gan.d)  # where it stands: at a checkpoint, perhaps
        else:
            assert isinstance(gan.d, RemotePlayer) and gan.d.snapshot is not None
            links = _Links(roles, pace, total, 0, gan.d.snapshot.num_bytes)
            post = FakesSender([links.sends.get(j) for j in range(len(roles.ranks[Side.D]))])
            (states,) = links.takes.values()
            self.side = GeneratorSide(gan.d.snapshot, post, states, pace, roles.batch_world, gan.d.policy.micro_batches)
            self.side.meet(gan.g.version)
        self._ends: list[GlooSender | GlooReceiver] = [*links.sends.values(), *links.takes.values()]

    @property
    def lag_records(self) -> dict[str, LagRecord]:
        return {self.here.value: self.side.lag_record}

    def step(self, reals: list[Batch]) -> Report:
        total = reals[-1].rows.total
        if isinstance(self.side, DiscriminatorSide):
            return self.gan.report(total, {Side.D: self.side.step(self.gan, reals)})
        return self.gan.report(total, {Side.G: self.side.step(self.gan, [real.rows for real in reals])})

    def quiesce(self) -> None:
        """Where G is, D is now as D's ranks have it."""
        if isinstance(self.side, GeneratorSide):
            self.side.meet(self.gan.g.version)

    def close(self) -> None:
        """Say that nothing comes any more, then hear it: in this order nobody waits for one who waits."""
        for end in self._ends:
            end.close()


def _like(real: Batch) -> Tensor:
    """One image, on the host."""
    assert real.x_BCHW is not None
    return torch.empty(real.x_BCHW.shape[1:], dtype=real.x_BCHW.dtype)


class _Links:
    """This rank's ends, by the other end's rank in its role: G sends fakes and takes states, D the reverse.

    All messages that the bound allows find room where they are taken: a link that stands still, because its taker is
    busy for long, would be as one whose taker is gone.
    """

    def __init__(self, roles: Roles, pace: LagBound, total: int, image_bytes: int, state_bytes: int) -> None:
        self.roles, self.number, self.room = roles, next(_NUMBER), pace.room
        self.sends: dict[int, GlooSender] = {}
        self.takes: dict[int, GlooReceiver] = {}
        num_g, num_d = (len(roles.ranks[side]) for side in Side)
        for i, j in pairs(total, num_g, num_d):
            self._make(f"fakes/{i}/{j}", Side.G, i, j, total * image_bytes)
        for i in range(num_g):
            self._make(f"states/{i}", Side.D, i, i * num_d // num_g, state_bytes)

    def _make(self, name: str, sender: Side, i: int, j: int, most_bytes: int) -> None:
        """Between rank i of G and rank j of D, if this is one of them."""
        side, mine = self.roles.sides[0], self.roles.batch_world.rank
        if mine != (i if side is Side.G else j):
            return
        other, timeout_s = (j if side is Side.G else i), self.roles.timeout_s
        group = pair(self.roles.world.store, f"link/{self.number}/{name}", int(side is not sender), timeout_s)
        if side is sender:
            self.sends[other] = GlooSender(group, 1, timeout_s=timeout_s)
        else:
            self.takes[other] = GlooReceiver(group, 0, most_bytes, self.room, timeout_s)
