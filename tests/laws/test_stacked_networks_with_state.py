"""Law: stacked convolutions, norms with statistics or vectors, dropout and noise train as cells one after another."""

import re

import pytest
import torch
from torch import nn

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.extensions.grid.build import trainer as grid
from paragan.extensions.grid.executors import choice, stacked
from paragan.game.state import state_of
from paragan.layers.random import Dropout
from paragan.losses import hinge
from paragan.models import dcgan, sngan, stylegan2
from paragan.optim import adabelief
from paragan.penalties import r1
from paragan.schemes import shared_fakes
from tests.genome_digest import digest
from tests.laws.test_loop_is_stacked import small_cell

CELLS, BATCH, SHAPE, CLASSES = 3, 4, (1, 8, 8), 3


class Painter(nn.Module):
    """Linear, a layer, convolution. layer: of 8 channels."""

    weight_init, latent = "orthogonal", 5

    def __init__(self, layer):
        super().__init__()
        self.linear, self.layer, self.out = nn.Linear(5, 8 * 16), layer, nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, z, y=None):
        return torch.tanh(self.out(torch.relu(self.layer(self.linear(z).unflatten(1, (8, 4, 4))))))


class Scale(nn.Module):
    """Puts a new tensor in place of its buffer, a mean of what it was called with."""

    def __init__(self):
        super().__init__()
        self.register_buffer("size", torch.ones(()))

    def forward(self, h):
        if self.training:
            self.size = 0.9 * self.size + 0.1 * h.detach().abs().mean()
        return h / self.size


class ReadsValues(nn.Module):
    """Reads the value of a tensor."""

    def forward(self, h):
        return h / max(h.detach().abs().max().item(), 1.0)


class HalfFrozen(nn.Module):
    """Some of its weights do not train."""

    def __init__(self):
        super().__init__()
        self.still, self.moves = nn.Conv2d(8, 8, 1).requires_grad_(False), nn.Conv2d(8, 8, 1)

    def forward(self, h):
        return self.moves(torch.relu(self.still(h)))


def of_model(model, **options):
    made = model.Options(conditional=True, **options)
    return {
        Side.G: lambda: model.Generator(made, SHAPE, CLASSES),
        Side.D: lambda: model.Discriminator(made, SHAPE, CLASSES),
    }


def with_layer(layer):
    return {Side.G: lambda: Painter(layer()), Side.D: of_model(dcgan, width=4, latent=5)[Side.D]}


NETS = {
    "dcgan": of_model(dcgan, width=4, latent=5, d_norm="batch"),
    "dcgan-spectral": of_model(dcgan, width=4, latent=5, d_norm="spectral"),
    "sngan": of_model(sngan, width=4, latent=5),
    "dropout": with_layer(lambda: Dropout(0.4)),
    "new-buffers": with_layer(Scale),
    "stylegan2": of_model(stylegan2, latent=5, style=6, mapping=2, width=4, mixing=0.9),
    "half-frozen": with_layer(HalfFrozen),
}


def cells(nets, eps=1e-3, **more):
    policy = {"kind": torch.optim.Adam, "arguments": {"betas": (0.5, 0.99), "eps": eps}, **more}
    return [small_cell(number, NETS[nets], SHAPE, BATCH, hinge.loss, **policy) for number in range(CELLS)]


GAMES = {name: {"nets": name} for name in NETS} | {
    "dcgan-r1": {"nets": "dcgan-spectral", "penalties": (r1.Penalty(r1.Options(weight=0.5, interval=2)),)},
    "dcgan-adabelief": {"nets": "dcgan", "kind": adabelief.Optimizer},
    "sngan-three-d-updates": {"nets": "sngan", "per_step": 3},
    "dropout-shared-fakes": {"nets": "dropout", "scheme": shared_fakes.Scheme()},
}


def everything(found):
    """Weights, buffers, averages and optimiser state of all players."""
    states = {(cell.number, side): state_of(p) for cell in found for side, p in cell.players.items()}
    tensors = {(*key, name): v.clone() for key, (of, _) in states.items() for name, v in of.tensors.items()}
    return tensors, {key: counters for key, (_, counters) in states.items()}


def evolve(executor, found, generations=2, steps=2):
    """Train, and clone G of a cell into the next one, as selection does."""
    for _ in range(generations):
        scalars = executor(found, steps, lambda cell, batch: 0)
        genomes = [cell.snapshot(0)[Side.G] for cell in found]
        for cell, genome in zip(found, genomes[1:] + genomes[:1], strict=True):
            cell.clone(Side.G, genome, 2e-3)
    return scalars


def buffers_of(net):
    return {name: value.clone() for name, value in net.named_buffers() if "noise" not in name}


def assert_equal(one, other, rounding=lambda name: 1e-12):
    (tensors, counters), (others, counted) = everything(one), everything(other)
    assert counters == counted and tensors.keys() == others.keys()
    for key, value in tensors.items():
        assert value.dtype == others[key].dtype
        near = rounding(key[2])
        torch.testing.assert_close(others[key], value, rtol=near, atol=near, msg=str(key))


# who steps: the stack, as it does for small networks, or each player
WAYS = [
    *((name, "stack") for name in ("dcgan", "dropout-shared-fakes", "new-buffers", "stylegan2")),
    *((name, "players") for name in ("dcgan-r1", "dcgan-adabelief", "sngan-three-d-updates", "half-frozen")),
]


@pytest.mark.parametrize(("name", "who"), WAYS)
def test_stacked_cells_with_state_equal_the_loop(name, who, monkeypatch):
    monkeypatch.setattr(stacked, "_LARGE_NUM_WEIGHTS", {"players": 0, "stack": 1 << 30}[who])
    one, other = cells(**GAMES[name]), cells(**GAMES[name])
    assert choice.unstackable_reason(other) is None
    before = buffers_of(one[0].gan.g.net)
    scalars, stacked_scalars = evolve(choice.train_in_loop, one), evolve(stacked.StackedExecutor(BATCH), other)
    assert_equal(one, other)
    changed = [not torch.equal(value, before[name]) for name, value in buffers_of(one[0].gan.g.net).items()]
    assert sum(changed) >= len(changed) / 2  # a vector of length 1 stays
    for number, values in scalars.items():
        assert values.keys() == stacked_scalars[number].keys()
        for key, value in values.items():
            assert float(stacked_scalars[number][key]) == pytest.approx(float(value), rel=1e-5, abs=1e-6), key


@pytest.mark.parametrize("name", ["dcgan", "dropout"])
def test_loop_and_stack_may_take_turns(name):
    """As while they are measured, in channels-last memory."""
    one, other = cells(**GAMES[name], channels_last=True), cells(**GAMES[name], channels_last=True)
    executors = [choice.train_in_loop, stacked.StackedExecutor(BATCH)]
    for number in range(4):
        evolve(choice.train_in_loop, one, 1), evolve(executors[number % 2], other, 1)
    assert_equal(one, other)
    layouts = [[p.stride() for p in cell.gan.g.net.parameters()] for cell in (one[1], other[1])]
    assert layouts[0] == layouts[1]


@pytest.mark.parametrize("layer", [lambda: nn.Dropout(0.4), lambda: ReadsValues()], ids=["dropout", "item"])
def test_network_that_vmap_refuses_is_refused_by_name_and_auto_trains_it_in_the_loop(layer, monkeypatch):
    monkeypatch.setitem(NETS, "unmappable", with_layer(layer))
    one, other = cells("unmappable"), cells("unmappable")
    with pytest.raises(ConfigError, match=r"torch.func.vmap cannot call Painter .*; use grid.executor=loop"):
        stacked.StackedExecutor(BATCH)(cells("unmappable"), 1, lambda cell, batch: 0)
    executors = {"stacked": stacked.StackedExecutor(BATCH), "loop": choice.train_in_loop}
    said = []
    evolve(choice.train_in_loop, one)
    evolve(choice.AutoExecutor(executors, said.append), other)
    assert_equal(one, other)
    assert said[0].startswith("executor  loop (")


@pytest.mark.parametrize("name", ["dcgan", "sngan"])
def test_stacked_cells_under_plain_adam_differ_in_biases_before_norms_alone(name):
    """Their gradient is 0: Adam divides its rounding by 1e-8, and running means follow the biases."""
    one, other = cells(**GAMES[name], eps=1e-8), cells(**GAMES[name], eps=1e-8)
    evolve(choice.train_in_loop, one), evolve(stacked.StackedExecutor(BATCH), other)
    assert_equal(
        one, other, lambda path: 1e-7 if re.search(r"conv\d?\.bias|shortcut\.bias|norm\.mean", path) else 1e-12
    )


STOPPED = (
    *("data.size=8", "train.threads=1", "train.batch=8", "augment=null", "evaluation.features=null", "grid.shape=2x2"),
    *("grid.batches=2", "grid.fitness.num_images=16", "every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=0"),
    *("grid.executor=stacked", "scheme=shared_fakes"),
)
MODELS = {
    "dcgan": "model={name: dcgan, conditional: true, width: 4, latent: 8, d_norm: batch}",
    "sngan": "model={name: sngan, width: 4, latent: 8}",
    "stylegan2": "model={name: stylegan2, width: 4, latent: 8, style: 8, mapping: 2}",
}


@pytest.mark.parametrize("name", ["dcgan", *(pytest.param(n, marks=pytest.mark.slow) for n in ("sngan", "stylegan2"))])
def test_stopping_a_stacked_grid_with_state_is_invisible(tmp_path, name):
    def run(kimg, folder):
        config = read_recipe("digits", (*STOPPED, MODELS[name], f"train.kimg={kimg}"))
        made = grid.evolution(config, tmp_path / folder, lambda text: None, lambda: False)
        made.resume()
        for _ in made.run():
            pass
        return made

    straight = run(0.064, "straight")
    assert run(0.032, "stopped").population.generation == 2 and straight.population.generation == 4
    resumed = run(0.064, "stopped")
    pairs = zip(straight.cells, resumed.cells, strict=True)
    assert all(digest(a.centre[side]) == digest(b.centre[side]) for a, b in pairs for side in Side)


@pytest.mark.parametrize(("name", "who"), WAYS)
def test_stacked_cells_restore_the_buffers_of_a_skipped_update(name, who, monkeypatch):
    monkeypatch.setattr(stacked, "_LARGE_NUM_WEIGHTS", {"players": 0, "stack": 1 << 30}[who])
    one, other = cells(**GAMES[name]), cells(**GAMES[name])
    for found in (one, other):
        found[1].batches.bad = (1,)
    choice.train_in_loop(one, 3, lambda cell, batch: 0)
    stacked.StackedExecutor(BATCH)(other, 3, lambda cell, batch: 0)
    assert_equal(one, other)
    assert one[1].players[Side.D].num_skipped() == 1


@pytest.mark.parametrize("is_skipped", [False, True])
def test_stacked_turn_of_g_begins_once_with_the_fakes_that_it_shares(is_skipped):
    """D's first update calls G as an opponent, and a skipped turn of G takes back what its forward changed."""
    game = {"nets": "dcgan", "scheme": shared_fakes.Scheme(), "per_step": 2}
    one, other = cells(**game), cells(**game)
    before = buffers_of(one[1].gan.g.net)
    if is_skipped:
        for found in (one, other):
            with torch.no_grad():
                list(found[1].gan.d.net.parameters())[-1].fill_(torch.inf)
    choice.train_in_loop(one, 3, lambda cell, batch: 0)
    stacked.StackedExecutor(BATCH)(other, 3, lambda cell, batch: 0)
    assert_equal(one, other)
    assert one[1].players[Side.G].num_skipped() == (3 if is_skipped else 0)
    equal = [torch.equal(value, before[name]) for name, value in buffers_of(other[1].gan.g.net).items()]
    assert all(equal) if is_skipped else not all(equal)
