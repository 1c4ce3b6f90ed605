"""Initial weights are a function of (seed, stream, name), distributed as the schemes say."""

from math import sqrt

import pytest
import torch
from torch import nn

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.layers.init import SCHEMES, initialise
from paragan.layers.spectral_norm import spectral_norm


class Net(nn.Module):
    """One of each kind, built in either order."""

    def __init__(self, scheme: str, backwards: bool = False) -> None:
        super().__init__()
        self.weight_init = scheme
        kinds = {
            "linear": lambda: nn.Linear(60, 40),
            "conv": lambda: spectral_norm(nn.Conv2d(20, 30, 3)),
            "transposed": lambda: nn.ConvTranspose2d(20, 30, 4),
            "embed": lambda: spectral_norm(nn.Embedding(50, 40)),
            "norm": lambda: AffineBatchNorm(400),
            "conditional": lambda: ConditionalBatchNorm(8, 3),
            "theirs": lambda: nn.GroupNorm(2, 400),
        }
        for name in reversed(kinds) if backwards else kinds:
            self.add_module(name, kinds[name]())


def drawn(scheme: str, seed: int = 0, stream: str = "g", **built) -> Net:
    net = Net(scheme, **built)
    initialise(net, seed, stream)
    return net


@pytest.mark.parametrize("scheme", SCHEMES)
def test_neither_order_nor_the_global_generator_matters(scheme):
    torch.manual_seed(0)
    a = drawn(scheme).state_dict()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    b = Net(scheme, backwards=True)
    with torch.no_grad():
        for parameter in b.parameters():
            parameter.normal_()
    state = torch.get_rng_state()
    assert not torch.equal(before, state)
    initialise(b, 0, "g")
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a[name], value) for name, value in b.state_dict().items())


def test_seed_stream_and_name_each_matter():
    base = drawn("orthogonal")
    weight = base.linear.weight
    assert not torch.equal(weight, drawn("orthogonal", seed=1).linear.weight)
    assert not torch.equal(weight, drawn("orthogonal", stream="d").linear.weight)
    pair = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    pair.weight_init = "orthogonal"
    initialise(pair, 0, "g")
    assert not torch.equal(pair[0].weight, pair[1].weight)


def test_the_draw_can_be_repeated_from_the_name_alone():
    """What a sharded start relies on."""
    expected = torch.empty(30, 20, 3, 3).normal_(
        0, 0.02, generator=rng.generator(0, "init", "g", "conv.parametrizations.weight.original")
    )
    assert torch.equal(drawn("normal_0.02").conv.parametrizations.weight.original, expected)


def test_normal_scheme():
    net = drawn("normal_0.02")
    assert net.conv.parametrizations.weight.original.std().item() == pytest.approx(0.02, rel=0.05)
    assert net.embed.parametrizations.weight.original.std().item() == pytest.approx(0.02, rel=0.1)
    for gain in (net.norm.gain, net.theirs.weight):
        assert gain.mean().item() == pytest.approx(1, abs=0.005) and gain.std().item() == pytest.approx(0.02, rel=0.2)
    assert not net.linear.bias.any() and not net.norm.bias.any() and not net.theirs.bias.any()


def test_orthogonal_scheme():
    net = drawn("orthogonal")
    rows = net.conv.parametrizations.weight.original.flatten(1)
    torch.testing.assert_close(rows @ rows.T, torch.eye(30), rtol=0, atol=1e-5)
    assert torch.equal(net.norm.gain, torch.ones(400))


def test_glorot_scheme():
    weight = drawn("glorot").conv.parametrizations.weight.original
    bound = sqrt(6 / ((20 + 30) * 9))
    assert weight.abs().max() <= bound and weight.abs().max() > 0.99 * bound


def test_torch_scheme_is_what_its_constructors_do():
    net = drawn("torch")
    for module in (net.linear, net.transposed):
        torch.manual_seed(0)
        module_of_torch = type(module)(*((60, 40) if module is net.linear else (20, 30, 4)))
        for role in ("weight", "bias"):
            ours, theirs = getattr(module, role), getattr(module_of_torch, role)
            assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.1)
            assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.25)
    assert net.embed.parametrizations.weight.original.std().item() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("name", ["conv", "embed"])
def test_spectral_norm_is_warm(name):
    module = getattr(drawn("glorot"), name)
    assert torch.linalg.matrix_norm(module.weight.flatten(1), 2).item() == pytest.approx(1, rel=0.05)


def test_an_outside_network_keeps_its_values():
    net = nn.Linear(3, 3)
    before = net.weight.clone()
    initialise(net, 0, "g")
    assert torch.equal(net.weight, before)


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(3))


class Filled(Constant):
    def fill(self, role, tensor, generator):
        tensor.uniform_(5, 6, generator=generator)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_parameter_that_no_scheme_knows(scheme):
    net = nn.Sequential(Filled())
    net.weight_init = scheme
    initialise(net, 0, "g")
    assert (net[0].value >= 5).all()
    net.append(Constant())
    with pytest.raises(ConfigError, match=r"Constant.value is unknown .* give Constant `fill"):
        initialise(net, 0, "g")
