"""Every network of the zoo with padded channels."""

import copy

import pytest
import torch

from paragan import build as building
from paragan.core.types import Side
from paragan.layers import padded_channels
from paragan.layers.padded_channels import pad_channels
from paragan.layers.update_once import begin_update
from paragan.loading.loader import Loader
from tests.contract.small_networks import all_of, build, call, inputs, stirred
from tests.contract.test_models import every_network
from tests.contract.test_tensor_models import CPU, config, found, images

__all__ = ["config", "found", "images"]  # fixtures
MULTIPLE = 7  # of no network's channels


@pytest.fixture(autouse=True)
def _any_work(monkeypatch):
    monkeypatch.setattr(padded_channels, "_MAX_WORK", 1000)


def padded(net):
    other = copy.deepcopy(net)
    kernels = [weight for weight in net.parameters() if weight.dim() in (3, 4)]
    assert bool(pad_channels(other, MULTIPLE)) == bool(kernels)
    return copy.deepcopy(other)


def gradients(net, values):
    values.sin().sum().backward()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10, msg=lambda text, n=name: f"{n}: {text}")


@every_network
def test_padding_of_an_image_network_changes_neither_function_nor_state(name, side, classes):
    net = stirred(build(name, side, classes, (3, 16, 16)))
    x, y = inputs(net, classes, (3, 16, 16))
    found, expected = [], []
    for one, results in ((padded(net), found), (net, expected)):
        begin_update(one)
        given = x.clone().requires_grad_(side == "Discriminator")
        values = all_of(call(one, given, y))
        results.append({"output": values.detach()})
        if side == "Discriminator":  # as R1
            (grad,) = torch.autograd.grad(values.sum(), given, create_graph=True)
            values = torch.cat([values, grad.flatten(1)], 1)
        results.append(gradients(one, values))
        results.append(dict(one.state_dict()))
    for one, other_one in zip(found, expected, strict=True):
        assert_equal(one, other_one)


def test_padding_of_a_tensor_network_changes_neither_function_nor_state(config, found):
    game = building.gan(config, found, CPU)
    nets = {Side.G: game.g.net, Side.D: game.d.net}
    taken = {}
    handles = [
        net.register_forward_pre_hook(lambda net, given, side=side: taken.update({side: given}))
        for side, net in nets.items()
    ]
    building.scheme(config).step(game, Loader(found.train, 2, 0, CPU))
    for handle in handles:
        handle.remove()
    for side, given in taken.items():
        net = nets[side].double().train()
        given = [x.detach().double() if x is not None and x.is_floating_point() else x for x in given]
        results = []
        for one in (padded(net), net):
            one.zero_grad()
            begin_update(one)
            torch.manual_seed(0)
            outputs = tensors_of(one(*given))
            total = torch.cat([value.flatten() for value in outputs])
            results.append(({"output": total.detach()}, gradients(one, total), dict(one.state_dict())))
        for a, b in zip(*results, strict=True):
            assert_equal(a, b)


def tensors_of(outputs):
    """Return the differentiable tensors in any structure of outputs."""
    if isinstance(outputs, torch.Tensor):
        return [outputs] if outputs.requires_grad else []
    if hasattr(outputs, "__dict__"):
        outputs = vars(outputs)
    members = outputs.values() if isinstance(outputs, dict) else outputs if isinstance(outputs, (list, tuple)) else ()
    return [tensor for member in members for tensor in tensors_of(member)]
