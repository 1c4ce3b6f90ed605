"""Penalties on weights with adapters, frozen weights and spectral norm: the weights in use, or one line."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.layers.spectral_norm import spectral_norm
from paragan.penalties.orthogonal import _matrices
from tests.tiny_run import train

ORTHOGONAL = "penalties=[{name: orthogonal, side: g, weight: 0.01}]"


def overlap(weight):
    gram = weight.flatten(1) @ weight.flatten(1).T
    return float(gram.fill_diagonal_(0).square().sum())


@pytest.mark.parametrize("scheme", ["synchronous", "shared_fakes", "extragradient"])
def test_orthogonal_penalises_the_weights_in_use_of_adapters(tmp_path, scheme):
    words = ("g.adapter={name: lora, rank: 2}", f"scheme.name={scheme}", "train.kimg=0.016")
    with_term = train(tmp_path / "a", ORTHOGONAL, *words)
    without = train(tmp_path / "b", "penalties=[]", *words)
    pairs = zip(with_term.gan.g.net.parameters(), without.gan.g.net.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)


def test_the_matrices_are_the_weights_in_use(tmp_path):
    trainer = train(tmp_path, ORTHOGONAL, "g.adapter={name: lora, rank: 2}", "train.kimg=0.032")
    net = trainer.gan.g.net
    used = [m.weight for m in net.modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd))]
    found = list(_matrices(net))
    assert len(found) == len(used) > 2
    for matrix, weight in zip(found, used, strict=True):
        assert sorted(matrix.detach().flatten().tolist()) == sorted(weight.detach().flatten().tolist())


def test_spectral_norm_is_left_out():
    net = spectral_norm(nn.Linear(5, 4))
    (matrix,) = _matrices(net)
    assert torch.equal(matrix, net.parametrizations.weight.original)


@pytest.mark.parametrize("scheme", ["synchronous", "shared_fakes"])
@pytest.mark.parametrize(("side", "frozen"), [(Side.D, "d.freeze=['*weight']"), (Side.G, "g.freeze=['*weight']")])
def test_a_term_that_reaches_no_trained_weight_is_refused(tmp_path, side, frozen, scheme):
    words = (f"penalties=[{{name: orthogonal, side: {side.value}, weight: 0.01}}]", frozen, f"scheme.name={scheme}")
    with pytest.raises(ConfigError, match=f"penalty orthogonal on {side.value}: it reaches no weight that trains"):
        train(tmp_path, *words)
