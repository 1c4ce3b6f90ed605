"""An opponent that was sent from elsewhere plays as the player it was taken of."""

from __future__ import annotations

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.game.snapshot import Snapshot, packed
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.laws.small_gan import batches, game, network, play, player


def moved():
    """A game that has made two steps, so that spectral norm's vectors are not those of the start."""
    gan = game(*(player(side, none.Strategy()) for side in Side))
    play(gan, synchronous, batches(), 2)
    return gan


def sent(seat):
    return packed(seat.strategy.weights(seat.net)).clone()


def test_g_learns_from_a_snapshot_what_it_learns_from_d():
    """Bit for bit, and the snapshot stays what it was, vectors and all."""
    ends = []
    for late in (False, True):
        gan, stream = moved(), batches()
        opponent = gan.d
        if late:
            opponent = Snapshot(network(Side.D, seed=9))
            opponent.follow(sent(gan.d), gan.d.version)
        turn = gan.g_turn([next(stream) for _ in range(3)][-1])
        gan.g.update(turn, against=opponent)
        ends.append(dict(gan.g.net.state_dict()))
        if late:
            assert sent(gan.d).equal(packed(opponent.net.state_dict()))
            assert not any(weight.requires_grad for weight in opponent.net.parameters())
    assert all(ends[0][name].equal(value) for name, value in ends[1].items())


def test_it_only_becomes_newer():
    gan = moved()
    snapshot, message = Snapshot(network(Side.D), version=5), sent(gan.d)
    before = packed(snapshot.net.state_dict())
    snapshot.follow(message, 5)
    assert packed(snapshot.net.state_dict()).equal(before) and snapshot.version == 5
    snapshot.follow(message, 6)
    assert packed(snapshot.net.state_dict()).equal(message) and snapshot.version == 6


def test_a_message_is_a_copy_and_holds_any_format():
    net = torch.nn.BatchNorm1d(3)  # float weights and a count in int64
    net.num_batches_tracked += 7
    message = packed(net.state_dict())
    net.weight.data += 1
    other = Snapshot(torch.nn.BatchNorm1d(3))
    other.follow(message, 1)
    assert int(other.net.num_batches_tracked) == 7 and other.net.weight.equal(torch.ones(3))


def test_a_message_of_another_network_is_refused():
    with pytest.raises(ConfigError, match="weights: received 3 bytes instead of 56"):
        Snapshot(torch.nn.BatchNorm1d(3)).follow(torch.zeros(3, dtype=torch.uint8), 1)
