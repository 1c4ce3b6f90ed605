"""Construction of networks: whole, or without memory for weights that are filled by shard."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError

Copied = TypeVar("Copied")


@dataclass(frozen=True)
class NetworkFactory:
    """Builder of one network with its initial weights.

    construct: returns the module on the CPU. fill: draws the initial weights by name, into the shards of a module;
    None: weights are those of the constructor, and cannot be built in shards. inputs: returns arguments of a call of
    the module, on the meta device, to count its operations; None: unknown.
    """

    construct: Callable[[], nn.Module]
    fill: Callable[[nn.Module], None] | None = None
    device: torch.device = torch.device("cpu")
    inputs: Callable[[nn.Module], Sequence[Tensor | None]] | None = None

    def __call__(self) -> nn.Module:
        """Build the unsharded network with its initial weights, on the device."""
        net = self.construct()
        if self.fill is not None:
            self.fill(net)
        return net.to(self.device)


def construct_network(
    kind: Callable[..., nn.Module], options: Any, shape: Sequence[int], num_classes: int, condition_channels: int | None
) -> nn.Module:
    """Construct a network of `shape`; one that takes images of other channels receives their number.

    condition_channels: of the images that samples are generated from; None without them.
    """
    if condition_channels in (None, shape[0]) or "condition_channels" not in signature(kind).parameters:
        return kind(options, shape, num_classes)
    return kind(options, shape, num_classes, condition_channels=condition_channels)


def copy_networks(original: Copied, *nets: nn.Module) -> Copied:
    """Return a deep copy of a network, or of an object that has the networks `nets`.

    Old-style hooks, such as those of `torch.nn.utils.weight_norm`, keep the weight that they compute as a
    plain attribute with a graph, which `copy.deepcopy` refuses; the copy computes its own at the next forward.
    """
    networks = nets or ((original,) if isinstance(original, nn.Module) else ())
    modules = (module for net in networks for module in net.modules())
    attributes = (value for module in modules for value in _tensors_in(vars(module)))
    computed = [value for value in attributes if value.grad_fn is not None]
    try:
        return copy.deepcopy(original, {id(value): value.detach().clone() for value in computed})
    except (TypeError, RuntimeError) as error:
        raise _describe_uncopyable(networks, error) from None


def _describe_uncopyable(networks: Sequence[nn.Module], error: Exception) -> ConfigError:
    """Return an error that names the attribute in the way."""
    name = next((name for net in networks for name in _uncopyable(net)), "")
    reason = f", because of its attribute {name}" if name else ""
    return ConfigError(
        f"a network cannot be copied{reason} ({error}); open files, locks and connections in forward, or leave them out"
    )


def _uncopyable(net: nn.Module) -> Iterator[str]:
    """Yield the attributes that `copy.deepcopy` refuses, with the names of their layers."""
    for place, module in net.named_modules():
        for name, value in vars(module).items():
            try:
                if name not in ("_modules", "_parameters", "_buffers") and not isinstance(value, Tensor):
                    copy.deepcopy(value)
            except (TypeError, RuntimeError):
                yield f"{place}.{name}".removeprefix(".")


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in an attribute, also those in lists and maps."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(item)


class Model(Protocol):
    """Factory of both networks: a file of `models/`, or networks from memory."""

    def Generator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
        """Return a new generator. shape: (C, H, W) of one image."""

    def Discriminator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
        """Return a new discriminator. shape: (C, H, W) of one image."""
