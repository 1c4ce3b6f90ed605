"""An update that is skipped changes nothing: neither weights nor buffers of any network of its turn."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.augment import ada
from paragan.core.skipped_state import buffer_places, copy_state, restore_if_skipped
from paragan.core.types import Side
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.layers.batch_norm import BatchNorm
from paragan.layers.spectral_norm import spectral_norm
from paragan.parallel import none
from paragan.schemes import extragradient, shared_fakes, synchronous
from tests.laws.small_gan import batches, game, network
from tests.numerics.games import Game, library

SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme(), "extragradient": extragradient.Scheme()}


class Scale(nn.Module):
    """Puts a new tensor in place of its buffer; `seen` grows with its input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("size", torch.ones((), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(0, dtype=torch.float64))

    def forward(self, h):
        if self.training:
            self.size = 0.9 * self.size + 0.1 * h.detach().abs().mean()
            self.seen = torch.zeros(len(self.seen) + 1, dtype=torch.float64)
        return h / self.size


class After(nn.Module):
    """A network of the small game, then a layer of its output."""

    def __init__(self, net, layer):
        super().__init__()
        self.net, self.layer = net, layer.double()

    def forward(self, x, y):
        out = self.net(x, y)
        return self.layer(out) if isinstance(out, torch.Tensor) else out


def game_with(layer):
    g = After(network(Side.G), layer())
    return game(*(Player(side=s, net=n, strategy=none.Strategy()) for s, n in ((Side.G, g), (Side.D, network(Side.D)))))


def state(gan, is_shaped=lambda name: "seen" not in name):
    nets = {"g": gan.g.net, "d": gan.d.net}
    values = ((f"{of}/{name}", value.clone()) for of, net in nets.items() for name, value in net.state_dict().items())
    return {name: value for name, value in values if is_shaped(name)}


@pytest.mark.parametrize("layer", [lambda: nn.BatchNorm2d(1), lambda: BatchNorm(1), Scale], ids=["torch", "own", "new"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_whose_fakes_are_not_finite_changes_no_tensor(scheme, layer):
    gan, stream = game_with(layer), batches()
    step = SCHEMES[scheme].step
    step(gan, stream)
    before = state(gan)
    handle = gan.g.net.net.register_forward_hook(lambda *args: args[-1] * torch.nan)
    step(gan, stream)
    handle.remove()
    assert gan.g.num_skipped() == gan.d.num_skipped() == 1
    assert all(torch.equal(value, before[name]) for name, value in state(gan).items())
    step(gan, stream)
    assert not all(torch.equal(value, before[name]) for name, value in state(gan).items())


class Count(pg.Penalty):
    """Counts its turns."""

    name = "count"
    weight = 1.0
    interval = 1

    def __init__(self):
        self.state = {"turns": torch.zeros(())}

    def __call__(self, context):
        self.state["turns"] += 1
        return context.outputs.images.flatten(1).mean(1)


STATEFUL = {
    "moving means": Game(d={"lecam": {"weight": 0.6}}),
    "mean length": Game(nets="stylegan2", g={"path_length": {"interval": 1}}),
    "averages of norms": Game(balanced=True, g={"near": {"weight": 1.0}}),
    "of a user": Game(),
}


@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_whose_gradients_overflow_changes_no_state_of_terms(scheme, kind):
    """Logits and losses are finite, as where a loss scale is too large."""
    step, stream = SCHEMES[scheme].step, batches()
    gan = library(STATEFUL[kind])
    if kind == "of a user":
        gan = replace(gan, g_penalties=(Count(),))
    step(gan, stream)
    player = gan.g if gan.g.state else gan.d
    before = {name: value.clone() for name, value in player.state.items()}
    handle = next(player.net.parameters()).register_hook(lambda gradient: gradient * torch.inf)
    step(gan, stream)
    handle.remove()
    assert player.num_skipped() == 1
    assert before and all(torch.equal(value, before[name]) for name, value in player.state.items())
    step(gan, stream)
    assert not any(torch.equal(value, before[name]) for name, value in player.state.items())


def test_rows_of_games_are_restored_one_by_one():
    held = {"mean": torch.zeros(3, 2), "count": torch.zeros(3, dtype=torch.int64), "none": None}
    copies = copy_state([(held, name) for name in held])
    held["mean"][:] = torch.nan
    held["count"] += 1
    restore_if_skipped(copies, torch.tensor([True, False, True]))
    assert held["mean"].isnan().all(1).tolist() == [True, False, True]
    assert held["count"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (nn.BatchNorm2d(1), ["running_mean", "running_var", "num_batches_tracked"]),
        (BatchNorm(1), []),
        (Scale(), ["size", "seen"]),
    ],
    ids=["torch", "own", "new"],
)
def test_buffers_of_an_opponent_are_those_that_its_player_does_not_hold(layer, names):
    net = nn.Sequential(layer, spectral_norm(nn.Conv2d(1, 1, 1)))
    called = CalledNetwork(module=net)
    assert [name for _, name in called.buffers] == names
    assert len(buffer_places(net)) > len(names)  # of its own turns


def test_networks_without_buffers_are_not_copied():
    assert buffer_places(nn.Linear(2, 2)) == () and copy_state(()) == []


@pytest.mark.parametrize("turn", [1, 2], ids=["look-ahead", "update"])
@pytest.mark.parametrize("side", ["g", "d"])
def test_an_extragradient_update_of_which_one_gradient_overflows_changes_nothing(side, turn):
    gan, stream = game_with(lambda: BatchNorm(1)), batches()
    gan = replace(gan, g_penalties=(Count(),))
    step = SCHEMES["extragradient"].step
    step(gan, stream)
    player, other = (gan.g, gan.d) if side == "g" else (gan.d, gan.g)
    before = {**state(gan), **{name: value.clone() for name, value in player.state.items()}}
    turns = []

    def overflow(gradient):
        turns.append(turn)
        return gradient * torch.inf if len(turns) == turn else gradient

    handle = next(player.net.parameters()).register_hook(overflow)
    step(gan, stream)
    handle.remove()
    assert len(turns) == 2
    assert (player.num_skipped(), other.num_skipped()) == (1, 0)
    after = {**state(gan), **player.state}
    changed = {name.partition("/")[0] for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {"d" if side == "g" else "g"}


@pytest.mark.parametrize("factor", [torch.inf, torch.nan])
def test_a_skipped_update_of_d_moves_no_adaptive_augmentation(factor):
    gan, stream = replace(library(Game()), augment=ada.Augment(ada.Options(interval=9))), batches()
    step = SCHEMES["synchronous"].step
    step(gan, stream)
    before = {name: value.clone() for name, value in gan.augment.state.items()}
    handle = next(gan.d.net.parameters()).register_hook(lambda gradient: gradient * factor)
    step(gan, stream)
    handle.remove()
    assert gan.d.num_skipped() == 1
    assert gan.augment.state == before and before["steps"] == 1
    step(gan, stream)
    assert gan.augment.state["steps"] == 2
