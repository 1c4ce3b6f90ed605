"""A genome is the whole of a player: a clone of it goes on as the player itself would."""

import json
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch

from paragan.core.types import Side
from paragan.extensions.grid.genome import Genome, Traits
from paragan.game.policy import Policy
from paragan.game.state import state_of
from paragan.optim import adabelief
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.laws.small_gan import batches, game, network, player

KINDS = {
    "Adam": Policy(kind=torch.optim.Adam, lr=1e-3, arguments={"betas": (0.5, 0.99)}),
    "AdaBelief": Policy(kind=adabelief.Optimizer, lr=1e-3, arguments={"betas": (0.5, 0.99)}),
    "SGD": Policy(kind=torch.optim.SGD, lr=1e-2),
}


def played(policy=KINDS["Adam"], steps=2, seed=0):
    """A game some steps in, and its stream."""
    seats = [player(side, none.Strategy(), make=partial(network, side, seed)) for side in Side]
    for seat in seats:
        seat.policy = policy
        seat.__post_init__()
    gan, stream = game(*seats), batches()
    for _ in range(steps):
        synchronous.step(gan, stream)
    return gan, stream, synchronous


def tensors(seat):
    return {name: value for name, value in state_of(seat)[0].tensors.items() if name != "player/updates"}


@pytest.mark.parametrize("kind", KINDS)
def test_clone_trains_as_the_player_would(kind):
    gan, stream, scheme = played(KINDS[kind])
    other, elsewhere, _ = played(KINDS[kind], steps=5, seed=1)
    for side in Side:
        mine, clone = getattr(gan, side.value), getattr(other, side.value)
        Genome.from_player(mine, Traits(lr=mine.policy.lr)).load_into(clone)
        clone.version, clone.images = mine.version, mine.images
        clone.updates.copy_(mine.updates)
    other.clock.step, other.clock.images = gan.clock.step, gan.clock.images
    other.prior, elsewhere = gan.prior, batches()
    for _ in range(2):
        next(elsewhere)
    for _ in range(2):
        scheme.step(gan, stream)
        scheme.step(other, elsewhere)
    for side in Side:
        expected, found = tensors(getattr(gan, side.value)), tensors(getattr(other, side.value))
        assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def test_genome_does_not_change_with_the_player():
    gan, stream, scheme = played()
    genome = Genome.from_player(gan.g, Traits(lr=1e-3))
    before = genome.file_bytes
    scheme.step(gan, stream)
    assert genome.file_bytes == before != Genome.from_player(gan.g, Traits(lr=1e-3)).file_bytes


def test_clone_has_the_learning_rate_of_the_genome():
    gan, stream, scheme = played()
    for lr in (3e-4, 9e-4, 1e-5):
        genome = Genome.from_player(gan.g, Traits(lr=lr))
        genome.load_into(gan.g)
        before = {name: value.clone() for name, value in gan.g.net.named_parameters()}
        scheme.step(gan, stream)
        assert {group["lr"] for group in gan.g.optimizer.param_groups} == {lr} and gan.g.policy.lr == lr
        moved = max(float((value - before[name]).detach().abs().max()) for name, value in gan.g.net.named_parameters())
        assert 0.2 * lr < moved < 5 * lr  # Adam moves every weight by about its rate


def test_clone_drops_state_of_another_optimiser_type():
    gan, _, _ = played(KINDS["Adam"])
    other, stream, scheme = played(KINDS["AdaBelief"], seed=1)
    Genome.from_player(gan.g, Traits(lr=1e-3)).load_into(other.g)
    assert not any(name.startswith("optimizer/") for name in tensors(other.g))
    weights = Genome.from_player(gan.g, Traits(lr=1e-3)).weights
    assert all(torch.equal(tensors(other.g)[name], value) for name, value in weights.items())
    scheme.step(other, stream)  # and it starts anew


@pytest.mark.parametrize(
    "odd",
    [
        {"lr": -1.0},
        {"lr": float("nan")},
        {"lr": 1},
        {"loss": -1},
        {"cell": True},
        {"memory": 3},
        {"x": 1},
        {"lr": None},
    ],
)
def test_invalid_traits_raise(odd):
    told = json.loads(json.dumps({**asdict(Traits(lr=1e-3)), **odd}))
    with pytest.raises((ValueError, TypeError)):
        Traits.from_dict(told)
    assert Traits.from_dict(asdict(Traits(lr=1e-3, loss=1, cell=2, generation=3, memory="x"))) == replace(
        Traits(lr=1e-3), loss=1, cell=2, generation=3, memory="x"
    )
