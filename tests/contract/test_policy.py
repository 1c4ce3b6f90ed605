"""Every step that is written anew honours each field of `Policy`, or refuses it by name.

The plain step is `Player.update`. The others: one program that steps the players of all cells, and a
worker that computes gradients for a server that steps.
"""

from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.executors import choice, stacked, stacked_adam
from paragan.extensions.parameter_server.messages import NetworkChange, load_packed, pack_change
from paragan.extensions.parameter_server.schemes import parameter_server
from paragan.game.gan import GAN
from paragan.game.options import ScheduleOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.scheme import FunctionScheme
from paragan.game.snapshot import packed
from paragan.layers.init import initialise
from paragan.losses import nonsaturating
from paragan.models import mlp
from paragan.schemes import synchronous
from tests.laws.cell_stream import CellStream

BATCH = 4
SHAPE = (1, 4, 4)
MLP = mlp.Options(latent=3, g_widths=(5,), d_widths=(6,), weight_init="orthogonal")
PLAIN = Policy(lr=0.01)
# a value of each field that differs from the default
VALUES = {
    "kind": torch.optim.RMSprop,
    "lr": 0.02,
    "arguments": {"betas": (0.5, 0.9)},
    "schedule": ScheduleOptions(name="linear", end=3),
    "max_norm": 1e-3,
    "micro_batches": 2,
    "updates_per_step": 2,
    "groups": ({"match": "*.bias", "lr": 0.1},),
    "update_probability": 0.5,
    "elsewhere": ("blocks.9.weight",),
}


def test_every_field_of_a_policy_has_a_value_here():
    assert VALUES.keys() == {field.name for field in fields(Policy)}
    assert all(Policy(**{name: value}).non_defaults == {name: value} for name, value in VALUES.items() if name != "lr")


def policy(name: str) -> Policy:
    return replace(PLAIN, **{name: VALUES[name]})


def game(of_d: Policy, seed: int = 0) -> GAN:
    nets = {Side.G: mlp.Generator(MLP, SHAPE).double(), Side.D: mlp.Discriminator(MLP, SHAPE).double()}
    for side, net in nets.items():
        initialise(net, seed, side.value)
    return GAN(
        g=Player(side=Side.G, net=nets[Side.G], policy=PLAIN),
        d=Player(side=Side.D, net=nets[Side.D], policy=of_d),
        loss=Loss(nonsaturating.d_loss, nonsaturating.g_loss),
        prior=Prior(seed=seed, latent=3, dtype=torch.float64),
    )


def real(step: int) -> Batch:
    rows = Rows(step=step, first=0, count=BATCH, total=BATCH)
    return Batch(rows, {"image": rng.uniform(7, "x", rows, SHAPE).double() * 2 - 1})


def cells(of_d: Policy) -> list[Cell]:
    scheme = FunctionScheme(synchronous.step)
    games = [game(of_d, seed) for seed in range(2)]
    return [
        Cell(number=number, gan=gan, scheme=scheme, batches=CellStream(7, BATCH, SHAPE), losses=[gan.loss])
        for number, gan in enumerate(games)
    ]


def weights(*players: Player) -> Tensor:
    return torch.cat([weight.detach().flatten() for player in players for weight in player.net.parameters()])


def trained(executor, of_d: Policy) -> Tensor:
    made = cells(of_d)
    executor(made, 3, lambda cell, batch: 0)
    return weights(*(player for cell in made for player in cell.players.values()))


CHANGE_NO_STEP = {"micro_batches", "elsewhere"}  # the same gradients, in parts; names of weights on other ranks


@pytest.mark.parametrize("name", [field.name for field in fields(Policy) if field.name not in CHANGE_NO_STEP])
def test_the_plain_step_honours_a_field(name):
    by_cell = trained(choice.train_in_loop, policy(name))
    assert (by_cell - trained(choice.train_in_loop, PLAIN)).abs().max() > 1e-6


@pytest.mark.parametrize("name", [field.name for field in fields(Policy)])
def test_stacked_cells_honour_a_field_or_refuse_it_by_name(name):
    reason = choice.unstackable_reason(cells(policy(name)))
    if name not in stacked_adam.HONOURED:
        assert reason is not None and name in reason and "\n" not in reason
        return
    assert reason is None
    by_cell = trained(choice.train_in_loop, policy(name))
    assert (by_cell - trained(stacked.StackedExecutor(BATCH), policy(name))).abs().max() < 1e-10


def stepped_by_a_server(of_d: Policy) -> Tensor:
    """Two turns of D whose gradients a worker computes, with the settings that `build` gives it."""
    worker = game(replace(of_d, max_norm=None))
    server = game(of_d)
    for step in range(2):
        load_packed(worker.d.net, packed(server.d.strategy.weights(server.d.net)).cpu())
        worker.d.compute_gradients(worker.d_turn(real(step)), worker.g)
        NetworkChange.read(pack_change(worker.d.net), server.d.net).apply(server.d, BATCH)
        worker.d.net.zero_grad()
        worker.d.version += 1
    return weights(server.d)


def stepped(of_d: Policy) -> Tensor:
    gan = game(of_d)
    for step in range(2):
        gan.d.update(gan.d_turn(real(step)), gan.g)
    return weights(gan.d)


@pytest.mark.parametrize("name", [field.name for field in fields(Policy)])
def test_worker_and_server_honour_a_field_or_refuse_it_by_name(name):
    scheme = parameter_server.Scheme()
    scheme._roles = SimpleNamespace(has_server=True, world=SimpleNamespace(size=2))
    gan = game(policy(name))
    if name not in parameter_server.HONOURED:
        with pytest.raises(ConfigError, match=name) as caught:
            scheme.refuse(gan, real(0).tensors)
        assert "\n" not in str(caught.value)
        return
    scheme.refuse(gan, real(0).tensors)
    assert (stepped(policy(name)) - stepped_by_a_server(policy(name))).abs().max() < 1e-12
