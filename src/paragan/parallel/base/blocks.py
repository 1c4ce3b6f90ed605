"""Blocks of a network: the units of sharding and of recomputation."""

from collections import Counter
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from paragan.layers.random import row_drawing_layers, with_keys

_LISTS = (nn.ModuleList, nn.Sequential)


def blocks(net: nn.Module) -> list[nn.Module]:
    """Return the members of `net.blocks`, or of every list or sequence of the network.

    Of a `ModuleDict` (several discriminators), those of each entry, or the entry itself. Only those
    with weights, none of which is shared with a module outside: they can be sharded.
    """
    if isinstance(net, nn.ModuleDict):
        candidates = [block for entry in net.values() for block in _declared(entry) or [entry]]
    else:
        candidates = _declared(net)
    owners = _num_owners(net)
    return [block for block in candidates if _shares_no_weight(block, owners)]


def _declared(net: nn.Module) -> list[nn.Module]:
    declared = getattr(net, "blocks", None)
    return list(declared.children()) if isinstance(declared, _LISTS) else list(_members(net))


def checkpoint_activations(net: nn.Module) -> None:
    """Recompute each block in the backward pass, without advancing state (Chen et al. 2016)."""
    for block in blocks(net):
        block.forward = checkpointed(block.forward)  # type: ignore[method-assign]


def checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that runs `forward` and recomputes it in the backward pass.

    A deep copy of its module runs the copied weights: `deepcopy` follows a partial, not a closure.
    """
    return update_wrapper(partial(_run_checkpointed, forward), forward)


def _run_checkpointed(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **named)
    # the keys of the rows are set on the layers during the forward alone, and the backward must draw the same numbers
    layers = row_drawing_layers(forward.__self__) if hasattr(forward, "__self__") else []
    keys_B = layers[0].keys_B if layers else None

    def with_same_draws(*inputs: object, **named: object) -> object:
        with with_keys(layers, keys_B):
            return forward(*inputs, **named)

    return checkpoint(with_same_draws, *inputs, use_reentrant=False, **named)


def _members(module: nn.Module) -> list[nn.Module]:
    members = []
    for child in module.children():
        if isinstance(child, _LISTS):
            members += _members(child)
        elif isinstance(module, _LISTS):
            members.append(child)
    return members


def _shares_no_weight(block: nn.Module, owners: Counter[int]) -> bool:
    inside = _num_owners(block)
    return bool(inside) and all(owners[key] == count for key, count in inside.items())


def _num_owners(net: nn.Module) -> Counter[int]:
    """Return how many modules of the network have each parameter, by its id."""
    return Counter(id(weight) for module in net.modules() for weight in module.parameters(recurse=False))
