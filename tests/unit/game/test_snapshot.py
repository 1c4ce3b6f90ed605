"""An opponent that was sent from elsewhere plays as the player it was taken of."""

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.game.snapshot import Snapshot, StateEncoder, packed
from paragan.schemes import synchronous
from tests.laws.small_gan import batches, network, play, small_game


def moved():
    """A game that has made two steps, so that spectral norm's vectors are not those of the start."""
    gan = small_game()
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
            opponent.update(sent(gan.d), gan.d.version)
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
    snapshot.update(message, 5)
    assert packed(snapshot.net.state_dict()).equal(before) and snapshot.version == 5
    snapshot.update(message, 6)
    assert packed(snapshot.net.state_dict()).equal(message) and snapshot.version == 6


def test_a_message_is_a_copy_and_holds_any_format():
    net = torch.nn.BatchNorm1d(3)  # float weights and a count in int64
    net.num_batches_tracked += 7
    message = packed(net.state_dict())
    net.weight.data += 1
    other = Snapshot(torch.nn.BatchNorm1d(3))
    other.update(message, 1)
    assert int(other.net.num_batches_tracked) == 7 and other.net.weight.equal(torch.ones(3))


def test_a_message_of_another_network_is_refused():
    with pytest.raises(ConfigError, match="weights: received 3 bytes instead of 56"):
        Snapshot(torch.nn.BatchNorm1d(3)).update(torch.zeros(3, dtype=torch.uint8), 1)


class Numbers(torch.nn.Module):
    """Weights in two formats and a count."""

    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Parameter(torch.zeros(200, dtype=torch.float64))
        self.weight = torch.nn.Parameter(torch.zeros(200))
        self.narrow = torch.nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


def followed(num_updates):
    """A network that moves, its snapshot by differences, and the state before the last update."""
    net, draw = Numbers(), torch.Generator().manual_seed(0)
    snapshot, encoder, messages = Snapshot(Numbers(), version=-1), StateEncoder(sends_differences=True), []
    with torch.no_grad():
        for version in range(num_updates):
            before = {name: value.clone() for name, value in snapshot.net.state_dict().items()}
            for weight in net.parameters():
                weight.add_(torch.randn(weight.shape, generator=draw).to(weight.dtype) * 3e-3 + 1e-3)
            net.count += 1
            message, is_difference = encoder.encode(net.state_dict())
            messages.append((len(message), is_difference))
            snapshot.update(message, version, is_difference)
    return net, snapshot, encoder, before, messages


@pytest.mark.parametrize("num_updates", [2, 300])
def test_differences_in_bf16_do_not_add_up_errors(num_updates):
    """After any number of updates a snapshot is within one rounding (2^-8) of the last difference."""
    net, snapshot, _, before, messages = followed(num_updates)
    here = snapshot.net.state_dict()
    for name in ("wide", "weight"):
        error = (here[name] - net.state_dict()[name]).double().abs()
        difference = (net.state_dict()[name] - before[name]).double().abs()
        epsilon = torch.finfo(here[name].dtype).eps * net.state_dict()[name].double().abs()  # of the sum
        assert (error <= 2**-8 * difference + epsilon).all(), name
        assert error.max() > 0, name
    assert here["narrow"].equal(net.narrow) and int(here["count"]) == num_updates
    sizes = {"exact": 200 * 12 + 8 * 2 + 8, "differences": 400 * 2 + 8 * 2 + 8}
    assert messages[0] == (sizes["exact"], False) and set(messages[1:]) == {(sizes["differences"], True)}
    assert not snapshot.is_exact


def test_an_exact_message_replaces_differences_of_the_same_version():
    net, snapshot, encoder, _, _ = followed(5)
    message, is_difference = encoder.encode(net.state_dict(), is_exact=True)
    assert not is_difference
    snapshot.update(message, 4)
    assert snapshot.is_exact and packed(snapshot.net.state_dict()).equal(packed(net.state_dict()))
    with torch.no_grad():
        net.weight += 0.1
    snapshot.update(*(found := encoder.encode(net.state_dict()))[:1], 5, found[1])
    assert found[1] and (snapshot.net.weight - net.weight).abs().max() <= 0.1 * 2**-8 + 1e-7
