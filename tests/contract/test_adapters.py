"""What every file of the adapters registry keeps. A new file is picked up by its name."""

import copy
import dataclasses
from functools import partial

import pytest
import torch
from torch import nn

from paragan.adapters._options import AdapterOptions
from paragan.core import registry
from paragan.layers.adapter import Adapter, add_adapter, merge_adapters

NAMES = registry.names("adapters")
LAYERS = {
    "linear": (lambda: nn.Linear(6, 5), (3, 6)),
    "convolution": (lambda: nn.Conv2d(4, 6, 3, groups=2), (3, 4, 5, 5)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 6, 3), (3, 4, 5, 5)),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)


def adapted(name: str, kind: str, stir: float = 0.0) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    """The layer with an adapter whose parameters moved, the layer without, and an input; float64."""
    torch.manual_seed(0)
    construct, shape = LAYERS[kind]
    plain = construct().double()
    layer = copy.deepcopy(plain)
    file = registry.load_module("adapters", name)
    adapter = file.Adapter(layer.weight, file.Options())
    for weight in adapter.parameters():
        weight.data.add_(torch.randn_like(weight), alpha=stir)
    add_adapter(layer, "weight", adapter)
    return layer, plain, torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", NAMES)
def test_options_name_the_weights(name):
    file = registry.load_module("adapters", name)
    assert issubclass(file.Adapter, Adapter) and issubclass(file.Options, AdapterOptions)
    assert dataclasses.fields(registry.options("adapters", name)) and file.Options().match == ()


@every_layer
@pytest.mark.parametrize("name", NAMES)
def test_adapter_changes_nothing_at_the_start(name, kind):
    layer, plain, x = adapted(name, kind)
    assert torch.equal(layer(x), plain(x))


@every_layer
@pytest.mark.parametrize("name", NAMES)
def test_adapter_trains_and_its_weight_does_not(name, kind):
    layer, plain, x = adapted(name, kind, stir=0.3)
    layer(x).square().sum().backward()
    gradients = {key: weight.grad for key, weight in layer.named_parameters()}
    assert gradients.pop("parametrizations.weight.original") is None
    assert all(gradient.abs().max() > 0 for gradient in gradients.values())
    assert (layer(x) - plain(x)).abs().max() > 1e-3


@every_layer
@pytest.mark.parametrize("name", NAMES)
def test_gradient_penalty_reaches_the_adapter(name, kind):
    layer, _, x = adapted(name, kind, stir=0.3)
    (gradient,) = torch.autograd.grad(layer(x).sin().sum(), x, create_graph=True)
    gradient.square().sum().backward()
    assert all(weight.grad.abs().max() > 0 for weight in layer.parametrizations.weight[0].parameters())


@every_layer
@pytest.mark.parametrize("name", NAMES)
def test_merged_layer_is_the_adapted_one(name, kind):
    layer, plain, x = adapted(name, kind, stir=0.3)
    expected = layer(x)
    merged = merge_adapters(layer)
    assert torch.equal(merged(x), expected)
    assert merged.state_dict().keys() == plain.state_dict().keys() and type(merged) is type(plain)


@pytest.mark.parametrize("name", NAMES)
def test_adapter_is_built_on_meta_and_filled_by_name(name):
    file = registry.load_module("adapters", name)
    make = partial(file.Adapter, options=file.Options())
    on_meta = make(torch.empty(6, 5, device="meta"))
    assert all(weight.is_meta for weight in on_meta.parameters())
    for role, weight in make(torch.empty(6, 5)).named_parameters():
        first = torch.empty(weight.shape)
        second = torch.empty(weight.shape)
        for value in (first, second):
            on_meta.fill(role, value, torch.Generator().manual_seed(1))
        assert torch.equal(first, second) and first.isfinite().all()
