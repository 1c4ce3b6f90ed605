"""What a turn does to a network, there and back as bytes, and of several workers together."""

import pytest
import torch
from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.extensions.parameter_server.messages import NetworkChange, load_packed, max_message_bytes, pack_change
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.snapshot import packed


class Net(nn.Module):
    """An odd number of bytes before the first number, a weight that no turn reaches, counts, another memory order."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        self.unused = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        return self.conv(x) * self.scale


def played(seed, count=1):
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    net(x).sum().backward()
    net.mean.copy_(x.mean().expand(4))
    net.count.fill_(count)
    return net


def test_network_change_packed_and_read_returns_equal_gradients_and_buffers():
    net = played(1, count=7)
    data = pack_change(net)
    assert data.dtype == torch.uint8 and len(data) <= max_message_bytes(net)
    found = NetworkChange.read(data, Net())
    for (name, weight), gradient in zip(net.named_parameters(), found.gradients, strict=True):
        assert gradient is None if name == "unused" else gradient.equal(weight.grad), name
    assert found.buffers[0].equal(net.mean) and int(found.buffers[1]) == 7


def test_network_change_applied_equals_an_update_of_the_player():
    net = played(1)
    mine, theirs = (
        Player(side=Side.D, net=played(1), policy=Policy(kind=torch.optim.Adam, lr=0.1, max_norm=0.5)) for _ in range(2)
    )
    mine.net.mean.zero_()
    norm = NetworkChange.read(pack_change(net), mine.net).apply(mine, 5)
    expected = theirs.apply_external_gradients([weight.grad for weight in theirs.net.parameters()], 5)
    assert norm.equal(expected) and norm > 0.5
    state = theirs.net.state_dict()
    assert all(value.equal(state[name]) for name, value in mine.net.state_dict().items())
    assert mine.net.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert (mine.version, int(mine.updates), mine.images) == (1, 1, 5)
    assert all(weight.grad is None for weight in mine.net.parameters())


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_external_gradients_in_another_memory_layout_give_the_same_step(kind):
    """Fused kernels look at the memory, not at strides."""
    nets = []
    for layout in (torch.channels_last, torch.contiguous_format):
        player = Player(side=Side.D, net=played(1), policy=Policy(kind=kind, lr=0.1))
        gradients = [None if w.grad is None else w.grad.clone() for w in player.net.parameters()]
        given = [g.contiguous(memory_format=layout) if g is not None and g.dim() == 4 else g for g in gradients]
        player.apply_external_gradients(given, 5)
        nets.append(player.net)
    assert all(torch.equal(a, b) for a, b in zip(*(net.parameters() for net in nets), strict=True))


def test_external_gradients_that_are_not_finite_skip_the_step():
    player = Player(side=Side.D, net=played(1))
    before = {name: value.clone() for name, value in player.net.state_dict().items()}
    bad = [None if w.grad is None else torch.full_like(w, torch.nan) for w in player.net.parameters()]
    player.apply_external_gradients(bad, 5)
    assert all(value.equal(before[name]) for name, value in player.net.state_dict().items())
    assert (player.version, int(player.updates)) == (1, 0)


def test_network_change_total_sums_gradients_and_averages_buffers():
    parts = [NetworkChange.read(pack_change(played(seed, count=seed)), Net()) for seed in (1, 2, 3)]
    total = NetworkChange.total(parts)
    by_hand = [
        None if gs[0] is None else gs[0] + gs[1] + gs[2] for gs in zip(*(p.gradients for p in parts), strict=True)
    ]
    for found, expected in zip(total.gradients, by_hand, strict=True):
        assert (found is None) == (expected is None) and (found is None or torch.allclose(found, expected))
    torch.testing.assert_close(total.buffers[0], sum(part.buffers[0] for part in parts) / 3)
    assert int(total.buffers[1]) == 1  # a count is the first one's
    equal = NetworkChange.total([parts[0]] * 3)
    assert equal.buffers[0].equal(parts[0].buffers[0])  # vectors of spectral norm stay what they are, to the bit
    assert NetworkChange.total(parts[:1]).gradients[1].equal(parts[0].gradients[1])


@pytest.mark.parametrize("cut", [-1, 1])
def test_bytes_of_another_network_are_refused(cut):
    net = played(1)
    for data, read in (
        (pack_change(net), lambda d: NetworkChange.read(d, net)),
        (packed(net.state_dict()), lambda d: load_packed(net, d)),
    ):
        wrong = data[:-1] if cut < 0 else torch.cat([data, data[:1]])
        with pytest.raises(ConfigError, match=r"received \d+ bytes instead of \d+: networks differ between ranks"):
            read(wrong)
