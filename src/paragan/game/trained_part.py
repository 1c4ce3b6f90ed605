"""Selection of the part of a network that trains: adapters, and parameters by patterns over their names."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from paragan.core.errors import ConfigError
from paragan.game.parameter_groups import describe_no_match, matches, plain_name
from paragan.layers.adapter import Adapter, adapter_names, add_adapter
from paragan.layers.frozen import Frozen

_ADAPTED = (nn.Linear, nn.modules.conv._ConvNd, parametrize.ParametrizationList)  # unless there are patterns


def add_adapters(
    net: nn.Module, make: Callable[[Tensor], Adapter], patterns: Sequence[str] = (), owner: str = "g"
) -> None:
    """Add an adapter to every weight that a pattern matches, or to all of linear layers and convolutions.

    make: returns the adapter of a weight. owner: prefix of settings, for messages. Raises
    `ConfigError` for a pattern without weights, and for weights that cannot have an adapter:
    vectors, those of several modules, and those with spectral norm or another parametrization.
    """
    weights = dict(_weights(net))
    check_patterns(f"{owner}.adapter.match", patterns, list(weights))
    chosen = {name: weight for name, weight in weights.items() if _is_chosen(name, *weight, patterns)}
    if not chosen:
        problem = f"{type(net).__name__} has no linear layer or convolution"
        raise ConfigError(f"{owner}.adapter: {problem}; name weights by {owner}.adapter.match")
    shared = Counter(id(getattr(module, role)) for module, role in weights.values())
    for name, (module, role) in chosen.items():
        weight = getattr(module, role)
        problem = "belongs to several layers" if shared[id(weight)] > 1 else ""
        if isinstance(module, parametrize.ParametrizationList):
            problem = "has spectral norm or another parametrization"
        if weight.dim() < 2:
            problem = "is a vector"
        if problem:
            raise ConfigError(
                f"{owner}.adapter: {plain_name(name)} {problem}; leave it out of the patterns of {owner}.adapter.match"
            )
        add_adapter(module, role, make(weight))


def select_trained(
    net: nn.Module, train: Sequence[str] = (), freeze: Sequence[str] = (), owner: str = "g"
) -> frozenset[str]:
    """Let only a part of a network train, by `requires_grad`; return the names of the other parameters.

    The part is all adapters and what a pattern of `train` matches; without adapters and patterns, what trained
    before. `freeze` leaves out what it matches. Raises `ConfigError` for a pattern without parameters.
    """
    weights = dict(net.named_parameters())
    for key, patterns in (("train", train), ("freeze", freeze)):
        check_patterns(f"{owner}.{key}", patterns, list(weights))
    adapters = adapter_names(net)
    for name, weight in weights.items():
        if train or adapters:
            weight.requires_grad_(name in adapters or _matches_any(name, train))
        if _matches_any(name, freeze):
            weight.requires_grad_(False)
    return fixed_names(net)


def fixed_names(net: nn.Module) -> frozenset[str]:
    """Return the names of the parameters that do not train."""
    return frozenset(name for name, weight in net.named_parameters() if not weight.requires_grad)


def check_trains(owner: str, net: nn.Module) -> None:
    """Raise `ConfigError` for a player without a weight that can change."""
    if not list(net.parameters()) and not isinstance(net, Frozen):
        raise ConfigError(
            f"{owner}: {type(net).__name__} has no weight to train; assign its layers to attributes, several as a "
            "torch.nn.ModuleList or ModuleDict: those in a list or dict are no part of a network"
        )
    if not any(weight.requires_grad for weight in net.parameters()):
        raise ConfigError(
            f"{owner}: {type(net).__name__} has no weight to train: all are frozen (requires_grad=False, "
            f"{owner}.freeze or paragan.Frozen); add a layer that trains, or leave its weights unfrozen"
        )


def check_saved(owner: str, net: nn.Module) -> None:
    """Raise `ConfigError` for numbers that no checkpoint can have."""
    tensors = chain(net.named_parameters(), net.named_buffers())
    if (wide := next((name for name, tensor in tensors if tensor.dtype == torch.complex128), None)) is not None:
        raise ConfigError(
            f"{owner}: {wide} has complex128 numbers, which checkpoints (safetensors files) cannot store; use complex64"
        )


def check_patterns(where: str, patterns: Sequence[str], names: Sequence[str]) -> None:
    """Raise `ConfigError` for a pattern that matches none of the names."""
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise ConfigError(describe_no_match(where, pattern, names))


def _weights(net: nn.Module) -> Iterator[tuple[str, tuple[nn.Module, str]]]:
    for where, module in net.named_modules():
        for role, _ in module.named_parameters(recurse=False):
            yield f"{where}.{role}" if where else role, (module, role)


def _is_chosen(name: str, module: nn.Module, role: str, patterns: Sequence[str]) -> bool:
    if patterns:
        return _matches_any(name, patterns)
    return isinstance(module, _ADAPTED) and role in ("weight", "original")


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(matches(name, pattern) for pattern in patterns)
