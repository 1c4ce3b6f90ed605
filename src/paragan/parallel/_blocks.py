"""The blocks of a network: what is sharded, recomputed (and later piped) as one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_LISTS = (nn.ModuleList, nn.Sequential)


def blocks(net: nn.Module) -> list[nn.Module]:
    """The members of `net.blocks` where there is such a list, else of every list or sequence; those with weights.

    A block that shares a weight with something outside of it is none: it could not be cut by itself.
    """
    declared = getattr(net, "blocks", None)
    found = list(declared) if isinstance(declared, _LISTS) else list(_members(net))
    owners: dict[int, int] = {}
    for module in net.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    return [block for block in found if _shares_no_weight(block, owners)]


def checkpoint_activations(net: nn.Module) -> None:
    """Keep only what enters each block; its inside is computed again in the backward (Chen et al. 2016).

    State that advances once per update stays as it is: the second forward finds the layers disarmed.
    """
    for block in blocks(net):
        block.forward = _with_recompute(block.forward)  # type: ignore[method-assign]


def _with_recompute(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def again(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        return checkpoint(forward, *inputs, use_reentrant=False, **named)

    return again


def _members(module: nn.Module) -> list[nn.Module]:
    found = []
    for child in module.children():
        inside = list(child.children()) if isinstance(child, _LISTS) else []
        plain = isinstance(module, _LISTS) and not isinstance(child, _LISTS)
        found += [child] if plain else _members(child) if inside else []
    return found


def _shares_no_weight(block: nn.Module, owners: dict[int, int]) -> bool:
    mine: dict[int, int] = {}
    for module in block.modules():
        for parameter in module.parameters(recurse=False):
            mine[id(parameter)] = mine.get(id(parameter), 0) + 1
    return bool(mine) and all(owners[key] == count for key, count in mine.items())
