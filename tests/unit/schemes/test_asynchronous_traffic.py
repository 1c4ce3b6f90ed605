"""Fewer bytes between asynchronous players: rounded states and samples, paired ranks, device links."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from paragan.core.dist import World
from paragan.core.roles import Roles, ranks_by_side
from paragan.core.types import Rows, Side
from paragan.schemes.asynchronous import Options, Scheme
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender, overlapping_ranks
from paragan.schemes.asynchronous.player_step import DIFFERENCE
from paragan.schemes.asynchronous.thread_step import ThreadLink
from tests.laws.small_gan import batches, small_game


def _sent(send, into, message):
    into.append((message.version, bool(message.note & DIFFERENCE)))
    send(message)


def published(scheme, gan, steps):
    """Versions of D that were sent, with whether they are differences, in these many steps."""
    sent, stream = [], batches()
    for number in range(steps):
        scheme.step(gan, stream)
        if number == 0:
            link = scheme._session.discriminator.states[0]
            link.send = partial(_sent, link.send, sent)
    scheme.quiesce()
    return sent


@pytest.mark.parametrize("k", [1, 2])
def test_d_sends_its_state_after_every_step_and_exactly_at_a_pause(k):
    scheme, gan = Scheme(Options(staleness=3, state_dtype="bf16")), small_game(k)
    sent = published(scheme, gan, 8)  # the first, which is exact, before that
    assert sent == [*((step * k, True) for step in range(2, 9)), (8 * k, False)]
    lags = scheme.staleness_logs["g"].lags
    assert set(lags) <= {0, 1, 2, 3} and sum(lags.values()) == 8
    snapshot = scheme._session.generator.opponent
    assert (snapshot.version, snapshot.is_exact) == (8 * k, True)
    assert all(value.equal(gan.d.net.state_dict()[name]) for name, value in snapshot.net.state_dict().items())
    scheme.close()


@pytest.mark.parametrize("total", [6, 7])
def test_rounded_samples_arrive_within_a_rounding_and_labels_exactly(total):
    links = {pair: ThreadLink() for pair in overlapping_ranks(total, 2, 2)}
    images = torch.rand(total, 1, 2, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    held = {"image": images, "label": torch.arange(total) * 1001, "size": torch.rand(total)}
    like = {name: tensor[0] for name, tensor in held.items()}
    for i, rows in enumerate(Rows(step=0, first=0, count=total, total=total).shares(2)):
        sender = FakesSender([links.get((i, j)) for j in range(2)], is_rounded=True)
        sender.send(rows, {name: tensor[rows.window] for name, tensor in held.items()}, version=0)
    receivers = [FakesReceiver([links[i, j] for i in range(2) if (i, j) in links], like, True) for j in range(2)]
    found = [receiver.receive(1.0).tensors for receiver in receivers]
    joined = {name: torch.cat([part[name] for part in found]) for name in held}
    assert joined["image"].dtype == torch.float32 and joined["image"].equal(images.to(torch.bfloat16).float())
    assert not joined["image"].equal(images)
    assert joined["label"].equal(held["label"]) and joined["size"].equal(held["size"])


def test_a_buffered_sample_does_not_change_with_the_generator_output():
    link, images = ThreadLink(), torch.zeros(2, 1, 2, 2)
    FakesSender([link], in_process=True).send(Rows(step=0, first=0, count=2, total=2), {"image": images}, 0)
    images += 1
    assert link.receive(0.0).tensors["image"].sum() == 0


@pytest.mark.parametrize(
    ("size", "num_g", "expected"),
    [(4, 2, [0, 2]), (8, 3, [0, 2, 5]), (3, 1, [0]), (5, 4, [0, 1, 2, 3]), (6, 3, [0, 2, 4])],
)
def test_paired_ranks_of_g_are_spread_evenly_from_rank_0(size, num_g, expected):
    counts = {Side.G: num_g, Side.D: size - num_g}
    rest = [rank for rank in range(size) if rank not in expected]
    assert ranks_by_side(counts, is_paired=True) == {Side.G: expected, Side.D: rest}
    assert ranks_by_side(counts) == {Side.G: list(range(num_g)), Side.D: list(range(num_g, size))}
    for ranks_of_a_host in (2, 3, 4):  # those that hold a whole host's share have both players
        for first in range(0, size - ranks_of_a_host + 1, ranks_of_a_host):
            here = [rank for rank in expected if first <= rank < first + ranks_of_a_host]
            assert abs(len(here) - ranks_of_a_host * num_g / size) < 1


def test_a_rank_of_g_receives_from_a_rank_of_d_on_its_host():
    hosts = [0, 0, 0, 3, 3, 3]
    roles = Roles(
        world=World(size=6), batch_world=World(size=3), ranks={Side.G: [0, 2, 4], Side.D: [1, 3, 5]}, hosts=hosts
    )
    assert roles.sources(Side.G, Side.D) == [0, 0, 1]  # numbers within D: ranks 1, 1, 3
    blocks = replace(roles, ranks={Side.G: [0, 1, 2], Side.D: [3, 4, 5]})
    assert blocks.sources(Side.G, Side.D) == [0, 1, 2]  # no D on that host
    assert replace(blocks, hosts=[0] * 6).sources(Side.G, Side.D) == [0, 1, 2]
    assert replace(blocks, ranks={Side.G: [0, 1, 2, 3], Side.D: [4, 5]}, hosts=()).sources(Side.G, Side.D) == [
        0,
        0,
        1,
        1,
    ]
