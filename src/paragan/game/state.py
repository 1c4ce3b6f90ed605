"""A player as named tensors and a few numbers: what a checkpoint keeps, and nothing it could derive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import CheckpointError
from paragan.game.player import Player

Tensors = dict[str, Tensor]


def state_of(player: Player) -> tuple[Tensors, dict[str, int]]:
    """Tensors under `net/`, `ema/`, `optimizer/PARAMETER/`, `player/`; the host's counters."""
    tensors = {f"net/{name}": value for name, value in player.strategy.weights(player.net).items()}
    if player.ema is not None:
        tensors |= {f"ema/{name}": value for name, value in player.strategy.weights(player.ema.net).items()}
    state = player.optimizer.state_dict()["state"]
    for index, (name, _) in enumerate(player.net.named_parameters()):
        for key, value in state.get(index, {}).items():
            if value is not None:
                tensors[f"optimizer/{name}/{key}"] = torch.as_tensor(value)
    tensors["player/updates"] = player.updates
    if player.scaler is not None:
        tensors |= {"player/scale": player.scaler.scale, "player/good": player.scaler.good}
    return _apart(tensors), {
        "version": player.version,
        "images": player.images,
    }


def _apart(tensors: Tensors) -> Tensors:
    """Contiguous, each in memory of its own: tied weights are written under every name they have."""
    seen: set[int] = set()
    apart = {}
    for name, value in tensors.items():
        value = value.detach().contiguous()
        apart[name] = value.clone() if value.data_ptr() in seen else value
        seen.add(value.data_ptr())
    return apart


def restore(player: Player, tensors: Mapping[str, Tensor], values: Mapping[str, int]) -> None:
    """Put a saved state into a freshly built player.

    Another model's state raises `CheckpointError` and changes nothing.
    """
    saved, mine = _under("net/", tensors), player.strategy.weights(player.net)
    check_same(saved, mine, player.side.value)
    player.strategy.load(player.net, saved)
    if player.ema is not None:
        average = _under("ema/", tensors) or saved  # averaging was switched on since: it starts at the weights
        player.strategy.load(player.ema.net, average)
    _restore_optimizer(player, _under("optimizer/", tensors))
    player.updates.copy_(tensors["player/updates"])
    if player.scaler is not None and "player/scale" in tensors:
        player.scaler.scale.copy_(tensors["player/scale"])
        player.scaler.good.copy_(tensors["player/good"])
    player.version, player.images = values["version"], values["images"]


def check_same(saved: Mapping[str, Tensor], mine: Mapping[str, Tensor], what: str) -> None:
    """The first tensor that differs in name or shape, by name."""
    for name in sorted(saved.keys() | mine.keys()):
        found, expected = (tuple(t[name].shape) if name in t else "none" for t in (saved, mine))
        if found != expected:
            raise CheckpointError(
                f"checkpoint of another model: {what}: {name}: found {found}, expected {expected}; "
                "give the model settings it was trained with, another --out, or --fresh"
            )


def _restore_optimizer(player: Player, saved: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Any]] = {}
    numbered = {name: (index, p) for index, (name, p) in enumerate(player.net.named_parameters())}
    for name, value in saved.items():
        parameter, _, key = name.rpartition("/")
        index, like = numbered[parameter]
        if value.shape == like.shape:
            # A fused kernel walks weight and state in memory order: a moment that came back contiguous beside a
            # channels-last weight would be added to other weights than its own.
            value = torch.empty_like(like, dtype=value.dtype).copy_(value)
        state.setdefault(index, {})[key] = value
    groups = player.optimizer.state_dict()["param_groups"]
    player.optimizer.load_state_dict({"state": state, "param_groups": groups})
    for name, value in saved.items():  # loading casts to the weight's dtype: NAdam keeps a product in another
        parameter, _, key = name.rpartition("/")
        held = player.optimizer.state[numbered[parameter][1]]
        held[key] = held[key].to(value.dtype)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
