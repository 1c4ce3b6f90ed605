"""Adapters: small trained functions of fixed weights, as parametrizations of the layers that have these weights.

In a custom training loop:

    from torch import nn
    from paragan.adapters import lora
    from paragan.layers.adapter import add_adapter, merge_adapters

    net.requires_grad_(False)
    for layer in [module for module in net.modules() if isinstance(module, nn.Linear)]:
        add_adapter(layer, "weight", lora.Adapter(layer.weight, lora.Options(rank=4)))
    ...  # train; the optimizer gets the parameters that require a gradient
    merge_adapters(net)  # a plain network again, with W + B A as weights
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrize

from paragan.layers.precision import autocast_off


class Adapter(nn.Module):
    """Base class: a parametrization of one weight, of which only the parameters here train.

    A weight is read as a matrix of (axis 0, all the rest). At the start, `adapt` must return the weight unchanged.
    """

    def adapt(self, weight: Tensor) -> Tensor:
        """Return the weight that the layer uses, for the fixed one."""
        raise NotImplementedError

    def fill(self, role: str, tensor: Tensor, generator: Generator) -> None:
        """Draw the initial values of the parameter `role`: called by `add_parameter`, and by `layers.init`."""
        raise NotImplementedError

    def forward(self, weight: Tensor) -> Tensor:
        with autocast_off(weight):
            return self.adapt(weight)

    def add_parameter(self, role: str, weight: Tensor, *shape: int) -> None:
        """Add the parameter `role` for a weight, with its dtype and device, filled with torch's global generator."""
        value = torch.empty(shape)
        self.fill(role, value, torch.default_generator)
        self.register_parameter(role, nn.Parameter(value.to(weight.device, weight.dtype)))


def matrix_shape(weight: Tensor) -> tuple[int, int]:
    """Return the rows and columns of a weight as a matrix."""
    return weight.shape[0], weight[0].numel()


def add_adapter(module: nn.Module, name: str, adapter: Adapter) -> None:
    """Let a module use `adapter(weight)` for its weight `name`, which no longer trains."""
    getattr(module, name).requires_grad_(False)
    # unsafe: an adapter keeps shape and dtype, and torch's check of that would call it
    parametrize.register_parametrization(module, name, adapter, unsafe=True)


def adapters_of(net: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield (name of a module in `net`, the module, name of its weight) for every weight with an adapter.

    An adapter is the first parametrization: weights that have another, such as spectral norm, get none.
    """
    for where, module in net.named_modules():
        for name, chain in cast(nn.ModuleDict, getattr(module, "parametrizations", nn.ModuleDict())).items():
            if isinstance(cast(nn.ModuleList, chain)[0], Adapter):
                yield where, module, name


def merge_adapters(net: nn.Module) -> nn.Module:
    """Replace every weight with an adapter by the value that its layer uses; return the network."""
    for _, module, name in list(adapters_of(net)):
        parametrize.remove_parametrizations(module, name)
    return net


def base_names(net: nn.Module) -> dict[str, str]:
    """Return the names of the weights below adapters, by their names without an adapter."""
    names = {}
    for where, _, name in adapters_of(net):
        prefix = f"{where}." if where else ""
        names[prefix + name] = f"{prefix}parametrizations.{name}.original"
    return names


def adapter_names(net: nn.Module) -> frozenset[str]:
    """Return the names of the parameters of all adapters."""
    places = [f"{where}." for where, module in net.named_modules() if isinstance(module, Adapter)]
    return frozenset(name for name, _ in net.named_parameters() if name.startswith(tuple(places)))
