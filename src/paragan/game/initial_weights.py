"""Initialisation of a player's weights from a file instead of its constructor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from paragan.core.layout import Shape, StoredTensors, optimizer_weights
from paragan.game.player import Player
from paragan.game.state import current_tensors
from paragan.layers.adapter import adapter_names


@dataclass(frozen=True, kw_only=True)
class LoadedWeights:
    """Tensors that a player loaded.

    left: its others, with shapes here and in the file (or None). unused: shapes of the file's
    others.
    """

    tensors: int
    parameters: int
    with_average: bool
    left: Mapping[str, tuple[Shape, Shape | None]]
    unused: Mapping[str, Shape] = field(default_factory=dict)


def start_from(
    player: Player, weights: StoredTensors, average: StoredTensors, initial: Callable[[], Mapping[str, Tensor]]
) -> LoadedWeights:
    """Copy every tensor whose name and shape match; the others have their initial values.

    Adapters are unchanged: the tensors are those of a network without them. average: averaged
    weights, or empty; the player's average, if any, starts there. initial: returns the network's
    initial state; called only if needed. Optimiser and counters stay.
    """
    adapters = current_tensors(player, adapter_names(player.net))
    shapes = {name: shape for name, shape in player.strategy.shapes(player.net).items() if name not in adapters}
    parameters = set(player.strategy.parameter_names(player.net))
    matching = {name for name, shape in shapes.items() if weights.shapes.get(name) == shape}
    left = {k: (shape, weights.shapes.get(k)) for k, shape in shapes.items() if k not in matching}
    if not matching & parameters:
        return LoadedWeights(tensors=0, parameters=0, with_average=False, left=left)
    stays = StoredTensors.of(initial() if left else {})
    started = StoredTensors(shapes, lambda k, box: (weights if k in matching else stays).read(k, box))
    started = started.joined(adapters)
    player.strategy.load(player.net, started)
    _copy_to_masters(player, started)
    with_average = player.ema is not None and matching <= average.shapes.keys()
    if player.ema is not None:
        averaged = StoredTensors(shapes, lambda k, box: (average if k in matching else stays).read(k, box))
        averaged = averaged.joined(adapters)
        player.strategy.load(player.ema.net, averaged if with_average else started)
    return LoadedWeights(
        tensors=len(matching),
        parameters=len(matching & parameters),
        with_average=with_average,
        left=left,
        unused={name: shape for name, shape in weights.shapes.items() if name not in shapes},
    )


def _copy_to_masters(player: Player, weights: StoredTensors) -> None:
    """Update the float32 copies that the optimiser steps where weights have a low precision."""
    held = player.optimizer.state_dict()
    boxes = player.strategy.optimizer_layout(player.net)
    if not any("master" in entry for entry in held["state"].values()):
        return
    for number, name in enumerate(optimizer_weights(player.optimizer)):
        held["state"][number]["master"] = weights.read(name, boxes[name])
    player.optimizer.load_state_dict(held)
