"""Penalties on weights with adapters, frozen weights and spectral norm: the weights in use, or one line."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

import paragan as pg
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.layers.spectral_norm import spectral_norm
from paragan.penalties.orthogonal import _matrices
from tests.numerics import games
from tests.tiny_run import train

ORTHOGONAL = "penalties=[{name: orthogonal, side: g, weight: 0.01}]"


def overlap(weight):
    gram = weight.flatten(1) @ weight.flatten(1).T
    return float(gram.fill_diagonal_(0).square().sum())


SCHEMES = ["synchronous", "shared_fakes", "extragradient"]
PARTS = ["adapter={name: lora, rank: 2}", "adapter={name: loha, rank: 2}", "freeze=['*bias']", "train=['blocks.0.*']"]


@pytest.mark.parametrize("part", PARTS, ids=["lora", "loha", "freeze", "train"])
@pytest.mark.parametrize("side", ["g", "d"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_orthogonal_moves_the_part_that_trains(tmp_path, scheme, side, part):
    """Three steps: layers with few rows start without overlap."""
    words = (f"{side}.{part}", f"{side}.optimizer={{name: SGD, lr: 0.1}}", f"scheme={scheme}", "train.kimg=0.048")
    with_term, without = (
        train(tmp_path / name, f"penalties={penalties}", *words).players[side]
        for name, penalties in (("a", f"[{{name: orthogonal, side: {side}, weight: 0.1}}]"), ("b", "[]"))
    )
    moved = [
        name
        for (name, a), b in zip(with_term.net.named_parameters(), without.net.parameters(), strict=True)
        if not torch.equal(a, b)
    ]
    assert moved and not with_term.base & set(moved)


class Constant(pg.Penalty):
    """A term whose value depends on nothing."""

    name = "constant"

    def __init__(self, uses_outputs):
        self.uses_outputs = uses_outputs

    def __call__(self, context):
        return torch.full((context.feed.rows.count,), 3.0, dtype=torch.float64)


@pytest.mark.parametrize("uses_outputs", [True, False])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_term_without_a_gradient_changes_no_weight_in_any_scheme(scheme, side, parts, uses_outputs):
    game = games.Game(scheme=scheme, parts=parts)
    found = []
    for terms in ((), (Constant(uses_outputs),)):
        gan = games.library(game)
        setattr(gan, f"{side.value}_penalties", terms)
        stream = games.batches()
        reports = [games.step(game, gan, stream).read() for _ in range(2)]
        found.append(games.state(gan))
    assert reports[1][f"{side.value}/loss/constant"] == 3
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


def test_the_matrices_are_the_weights_in_use(tmp_path):
    trainer = train(tmp_path, ORTHOGONAL, "g.adapter={name: lora, rank: 2}", "train.kimg=0.032")
    net = trainer.gan.g.net
    layers = [m for m in net.modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd))]
    used = [m.weight for m in layers if min(m.weight.shape[:2]) > 1]  # one filter, of the grey image, overlaps none
    found = list(_matrices(net))
    assert len(layers) == len(used) + 1 > 2 and len(found) == len(used)
    for matrix, weight in zip(found, used, strict=True):
        assert sorted(matrix.detach().flatten().tolist()) == sorted(weight.detach().flatten().tolist())


class Twice(nn.Module):
    def forward(self, weight):
        return 2 * weight


def test_spectral_norm_is_left_out_and_what_comes_before_it_is_not():
    net = spectral_norm(nn.Linear(5, 4))
    (matrix,) = _matrices(net)
    assert torch.equal(matrix, net.parametrizations.weight.original)
    net = nn.Linear(5, 4)
    register_parametrization(net, "weight", Twice())
    spectral_norm(net)
    (matrix,) = _matrices(net)
    assert torch.equal(matrix, 2 * net.parametrizations.weight.original)


@pytest.mark.parametrize("scheme", ["synchronous", "shared_fakes"])
@pytest.mark.parametrize(("side", "frozen"), [(Side.D, "d.freeze=['*weight']"), (Side.G, "g.freeze=['*weight']")])
def test_a_term_that_reaches_no_trained_weight_is_refused(tmp_path, side, frozen, scheme):
    words = (f"penalties=[{{name: orthogonal, side: {side.value}, weight: 0.01}}]", frozen, f"scheme.name={scheme}")
    with pytest.raises(ConfigError, match=f"penalty orthogonal on {side.value}: it reaches no weight that trains"):
        train(tmp_path, *words)
