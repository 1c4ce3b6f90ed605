"""A player as named tensors and a few numbers: what a checkpoint keeps, and nothing it could derive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import CheckpointError
from paragan.core.pieces import Pieces, StoredTensors
from paragan.core.shard import local_shard
from paragan.core.window import Window
from paragan.game.player import Player

Tensors = dict[str, Tensor]


def state_of(player: Player) -> tuple[Pieces, dict[str, int]]:
    """Tensors under `net/`, `ema/`, `optimizer/PARAMETER/`, `player/`, `kept/`, as this rank holds them; the host's
    counters.

    Nothing travels between ranks.
    """
    layout = player.strategy.layout(player.net)
    assert layout.weights.of == 1 or layout.weights == layout.state
    tensors, cut = _network("net/", player.net, layout.weights)
    if player.ema is not None:
        average, cut_average = _network("ema/", player.ema.net, layout.state)
        tensors, cut = tensors | average, cut | cut_average
    remembered = _remembered(layout.own)
    for name, like, key, value in _optimizer(player):
        tensors[path := f"{remembered}{name}/{key}"] = value
        if layout.own.index or (layout.state.of > 1 and like.dim() and value.shape == like.shape):
            cut.add(path)
    tensors["player/updates"] = player.updates
    tensors |= {f"kept/{name}": value for name, value in player.state.items()}
    if player.scaler is not None:
        tensors |= {"player/scale": player.scaler.scale, "player/good": player.scaler.good}
    counters = {"version": player.version, "images": player.images}
    window = layout.own if layout.own.of > 1 else layout.state
    return Pieces(_apart(tensors), frozenset(cut), window, layout.writes), counters


def _remembered(own: Window) -> str:
    """Under what an optimiser's tensors are saved; rank 0's, as those that are equal everywhere, without a number."""
    return f"rank-{own.index}/optimizer/" if own.index else "optimizer/"


def _network(prefix: str, net: torch.nn.Module, window: Window) -> tuple[Tensors, set[str]]:
    """Parameters and buffers, and the names of those that are cut."""
    weights = {name for name, value in net.named_parameters(remove_duplicate=False) if value.dim()}
    held = net.state_dict()
    cut = {prefix + name for name in held if name in weights} if window.of > 1 else set()
    return {prefix + name: local_shard(value) for name, value in held.items()}, cut


def _optimizer(player: Player) -> Iterator[tuple[str, Tensor, str, Tensor]]:
    """(parameter, the tensor stepped for it here, key, value) of all that the optimiser remembers."""
    state = player.optimizer.state_dict()["state"]
    for index, (name, like) in enumerate(_stepped(player).items()):
        for key, value in state.get(index, {}).items():
            if value is not None:
                yield name, like, key, torch.as_tensor(value)


def _stepped(player: Player) -> Tensors:
    """What the optimiser steps, by the parameter's name: the parameter, a copy of it, or this rank's piece.

    In the order of the groups, by which torch numbers the state.
    """
    stepped: Tensors = {}
    for group in player.optimizer.param_groups:
        stepped |= zip(group["param_names"], group["params"], strict=True)
    return stepped


def _apart(tensors: Tensors) -> Tensors:
    """Contiguous, each in memory of its own: tied weights are written under every name they have."""
    seen: set[int] = set()
    separate = {}
    for name, value in tensors.items():
        value = value.detach().contiguous()
        separate[name] = value.clone() if value.data_ptr() in seen else value
        seen.add(value.data_ptr())
    return separate


def restore(player: Player, saved: StoredTensors, values: Mapping[str, int]) -> None:
    """Put a saved state into a freshly built player, whatever the strategy that saved it and the player's own.

    Every rank reads whole tensors, one at a time, and keeps its pieces. Another model's state raises `CheckpointError`
    and changes nothing.
    """
    weights, average = saved.under("net/"), saved.under("ema/")
    mine = player.net.state_dict()
    for tensors in (weights, average) if average else (weights,):
        check_same(tensors, mine, player.side.value)
    masters = {name: f"optimizer/{name}/master" for name, _ in player.net.named_parameters()}
    exact = StoredTensors(  # where weights were kept in low precision, the optimiser's copies are the true ones
        weights.shapes, lambda name: saved[key] if (key := masters.get(name, "")) in saved else weights[name]
    )
    player.strategy.load(player.net, exact)
    if player.ema is not None:  # averaging may have been switched on since: it starts at the weights
        player.strategy.load(player.ema.net, average or exact)
    whose = _whose(player.strategy.layout(player.net).own, saved)
    _restore_optimizer(player, saved.under(_remembered(whose)), exact)
    player.updates.copy_(saved["player/updates"])
    if player.scaler is not None and "player/scale" in saved:
        player.scaler.scale.copy_(saved["player/scale"])
        player.scaler.good.copy_(saved["player/good"])
    for name, value in player.state.items():
        if (path := f"kept/{name}") in saved:  # whatever remembers may have been added since: it starts anew
            value.copy_(saved[path])
    player.version, player.images = values["version"], values["images"]


def _whose(own: Window, saved: StoredTensors) -> Window:
    """This rank's own optimiser state where as many ranks saved theirs; rank 0's on any other number of ranks."""
    ranks = {int(name[5:].partition("/")[0]) for name in saved if name.startswith("rank-")}
    return own if ranks == set(range(1, own.of)) else Window()


def check_same(saved: Mapping[str, Tensor], mine: Mapping[str, Tensor], what: str) -> None:
    """The first tensor that differs in name or shape, by name. Of stored ones no value is read."""
    shapes = [
        t.shapes if isinstance(t, StoredTensors) else {n: tuple(v.shape) for n, v in t.items()} for t in (saved, mine)
    ]
    for name in sorted(saved.keys() | mine.keys()):
        found, expected = (of.get(name, "none") for of in shapes)
        if found != expected:
            raise CheckpointError(
                f"checkpoint of another model: {what}: {name}: found {found}, expected {expected}; "
                "give the model settings and the data (size, classes) it was trained with, another --out, or --fresh"
            )


def _restore_optimizer(player: Player, saved: StoredTensors, weights: StoredTensors) -> None:
    window, stepped = player.strategy.layout(player.net).state, _stepped(player)
    numbers = {name: index for index, name in enumerate(stepped)}
    fresh = player.optimizer.state_dict()
    keeps_masters = any("master" in entry for entry in fresh["state"].values())
    state: dict[int, dict[str, Any]] = {}
    for path in saved:
        name, _, key = path.rpartition("/")
        if key == "master" and not keeps_masters:
            continue  # it went into the weights, and would be out of date at the next save
        value = saved[path]
        if value.shape == weights.shapes[name]:
            # A fused kernel walks weight and state in memory order: a moment that came back contiguous beside a
            # channels-last weight would be added to other weights than its own.
            value = torch.empty_like(stepped[name], dtype=value.dtype).copy_(window.cut(value))
        else:
            value = value.clone()  # of the file's memory
        state.setdefault(numbers[name], {})[key] = value
    if keeps_masters:  # since this resume, perhaps
        for name, number in numbers.items():
            state.setdefault(number, {}).setdefault("master", window.cut(weights[name]))
    player.optimizer.load_state_dict({"state": state, "param_groups": fresh["param_groups"]})
    for path in saved:  # loading casts to the weight's dtype: NAdam keeps a product in another
        name, _, key = path.rpartition("/")
        held = player.optimizer.state.get(stepped[name], {})
        if key in held:
            held[key] = held[key].to(state[numbers[name]][key].dtype)
