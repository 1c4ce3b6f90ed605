"""State of a player in a checkpoint: named tensors and a few numbers."""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

from paragan.core.errors import CheckpointError
from paragan.core.layout import (
    Pieces,
    Shape,
    StoredTensors,
    TensorLayout,
    fingerprint,
    gather_full,
    local_shard,
    optimizer_weights,
)
from paragan.game.player import Player

Tensors = dict[str, Tensor]


def state_of(player: Player) -> tuple[Pieces, dict[str, int]]:
    """Return the state of a player as pieces on this rank, and its counters.

    Tensors are under `net/`, `ema/`, `optimizer/PARAMETER/`, `player/`, `state/`; those of the base
    are left out. No communication.
    """
    tensors: Tensors = {}
    layout: dict[str, TensorLayout] = {}
    networks = {"net": player.net}
    if player.ema is not None:
        networks["ema"] = player.ema.net
    for key, net in networks.items():
        saved = {name: value for name, value in net.state_dict().items() if name not in player.base}
        tensors |= {f"{key}/{name}": local_shard(value) for name, value in saved.items()}
        layout |= {f"{key}/{name}": box for name, box in player.strategy.layout(net).items() if name in saved}
    boxes = player.strategy.optimizer_layout(player.net)
    prefix = _optimizer_prefix(player.strategy.optimizer_replica(player.net)[0])
    for name, stepped, key, value in _optimizer_state(player):
        if name in player.base:
            continue  # its float32 copy
        tensors[f"{prefix}{name}/{key}"] = value
        if value.shape == stepped.shape:  # else a number, such as a count of steps, which is whole on every rank
            layout[f"{prefix}{name}/{key}"] = boxes[name]
    tensors["player/updates"] = player.updates
    player.state.check()
    tensors |= {f"state/{name}": value for name, value in player.state.items()}
    if player.scaler is not None:
        tensors |= {"player/scale": player.scaler.scale, "player/good": player.scaler.good}
    counters = {"version": player.version, "images": player.images, "due_turns": player.due_turns}
    return Pieces(_in_separate_memory(tensors), layout), counters


def _optimizer_prefix(replica: int) -> str:
    """Return the prefix of optimiser state; per-rank state has a number, except on rank 0."""
    return f"rank-{replica}/optimizer/" if replica else "optimizer/"


def _optimizer_state(player: Player) -> Iterator[tuple[str, Tensor, str, Tensor]]:
    """Yield (parameter, tensor stepped for it here, key, value) of the optimiser state."""
    state = player.optimizer.state_dict()["state"]
    for index, (name, stepped) in enumerate(optimizer_weights(player.optimizer).items()):
        for key, value in state.get(index, {}).items():
            if value is not None:
                yield name, stepped, key, torch.as_tensor(value)


def _in_separate_memory(tensors: Tensors) -> Tensors:
    """Return contiguous tensors in separate memory: tied weights are written under every name."""
    seen: set[int] = set()
    separate = {}
    for name, value in tensors.items():
        value = value.detach().contiguous()
        separate[name] = value.clone() if value.data_ptr() in seen else value
        seen.add(value.data_ptr())
    return separate


def restore(player: Player, saved: StoredTensors, values: Mapping[str, int]) -> None:
    """Load a saved state into a newly built player; both may use any strategy.

    Every rank reads its pieces. Raises `CheckpointError`, before any change, for another model or state of terms.
    """
    weights = with_base(player, saved.under("net/"))
    average = saved.under("ema/")
    average = with_base(player, average) if average else average
    for tensors in (weights, average) if average else (weights,):
        check_same(tensors.shapes, player.strategy.shapes(player.net), player.side.value)
    # The state of a penalty that was added since the save stays initial.
    terms = saved.under("state/")
    known = {name: value for name, value in player.state.items() if name in terms}
    local = {name: tuple(value.shape) for name, value in known.items()}
    check_same({name: terms.shapes[name] for name in known}, local, f"{player.side.value}.state")

    def read_exact(name: str, box: TensorLayout) -> Tensor:
        master = f"optimizer/{name}/master"  # the float32 copy of a low-precision weight, which is exact
        return saved.read(master, box) if master in saved else weights.read(name, box)

    exact = StoredTensors(weights.shapes, read_exact)
    player.strategy.load(player.net, exact)
    # An average that was switched on after the save starts at the weights.
    if player.ema is not None:
        player.strategy.load(player.ema.net, average or exact)
    replica = player.strategy.optimizer_replica(player.net)
    prefix = _optimizer_prefix(_saved_replica(*replica, saved))
    _restore_optimizer(player, saved.under(prefix), exact)
    player.updates.copy_(saved["player/updates"])
    if player.scaler is not None and "player/scale" in saved:
        player.scaler.scale.copy_(saved["player/scale"])
        player.scaler.good.copy_(saved["player/good"])
    for name, value in known.items():
        value.copy_(terms[name])
    player.version = values["version"]
    player.images = values["images"]
    # A checkpoint without this counter: no update before it counts as skipped.
    player.due_turns = values["due_turns"] if "due_turns" in values else int(player.updates)


def with_base(player: Player, saved: StoredTensors) -> StoredTensors:
    """Return saved tensors of a player's network together with its base, as pieces on this rank."""
    return saved.joined(current_tensors(player, player.base)) if player.base else saved


def current_tensors(player: Player, names: Collection[str]) -> StoredTensors:
    """Return the tensors of a network with these names; only boxes on this rank can be read."""
    boxes = player.strategy.layout(player.net)
    tensors = player.net.state_dict()

    def read(name: str, box: TensorLayout) -> Tensor:
        return local_shard(tensors[name].detach())[box.within(boxes[name])]

    return StoredTensors({name: boxes[name].shape for name in names}, read)


def base_sha256(player: Player) -> str:
    """Return the fingerprint of a player's base, the same under any strategy; empty without one. Collective."""
    if not player.base:
        return ""
    tensors = player.net.state_dict()
    shapes = {name: tuple(tensors[name].shape) for name in player.base}
    return fingerprint(StoredTensors(shapes, lambda name, box: gather_full(tensors[name].detach())))


def _saved_replica(replica: int, replicas: int, saved: StoredTensors) -> int:
    """Return this rank's number if as many ranks saved an optimiser state; else 0, for all."""
    ranks = {int(name[5:].partition("/")[0]) for name in saved if name.startswith("rank-")}
    return replica if ranks == set(range(1, replicas)) else 0


def check_same(saved: Mapping[str, Shape], local: Mapping[str, Shape], what: str) -> None:
    """Raise `CheckpointError` with the first tensor that differs in name or shape, by name."""
    for name in sorted(saved.keys() | local.keys()):
        if saved.get(name) != local.get(name):
            raise CheckpointError(
                f"checkpoint of another model: {what}: {name} is {saved.get(name, 'missing')} there and "
                f"{local.get(name, 'missing')} in this model; give the model settings and the data (size, classes) "
                "it was trained with, another --out, or --fresh"
            )


def _restore_optimizer(player: Player, saved: StoredTensors, weights: StoredTensors) -> None:
    """Load the saved state of the weights that this rank steps. weights: for float32 copies that were not saved."""
    boxes = player.strategy.optimizer_layout(player.net)
    stepped = optimizer_weights(player.optimizer)
    fresh = player.optimizer.state_dict()
    has_master_weights = any("master" in entry for entry in fresh["state"].values())
    state: dict[str, dict[str, Tensor]] = {name: {} for name in stepped}
    for path in saved:
        name, _, key = path.rpartition("/")
        if name in weights.shapes and name not in boxes:
            continue  # another rank has this part of the network
        if key == "master" and not has_master_weights:
            continue  # it was loaded into the weights
        if saved.shapes[path] == weights.shapes[name]:
            # Fused kernels walk weight and state in memory order: a moment needs the layout of
            # its weight, such as channels-last.
            piece = saved.read(path, boxes[name])
            state[name][key] = torch.empty_like(stepped[name], dtype=piece.dtype).copy_(piece)
        else:
            state[name][key] = saved[path].clone()  # not a view of the file
    if has_master_weights:
        for name, values in state.items():
            values.setdefault("master", weights.read(name, boxes[name]))
    by_number = {number: values for number, values in enumerate(state.values()) if values}
    player.optimizer.load_state_dict({"state": by_number, "param_groups": fresh["param_groups"]})
    # Loading casts to the weight's dtype; NAdam has a product in another.
    for name, values in state.items():
        loaded = player.optimizer.state.get(stepped[name], {})
        for key in loaded.keys() & values.keys():
            loaded[key] = loaded[key].to(values[key].dtype)
