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

    unmatched: its others, with shapes here and in the file (or None). unused: shapes of the file's others.
    """

    tensors: int
    parameters: int
    with_average: bool
    unmatched: Mapping[str, tuple[Shape, Shape | None]]
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
    unmatched = {name: (shape, weights.shapes.get(name)) for name, shape in shapes.items() if name not in matching}
    if not matching & parameters:
        return LoadedWeights(tensors=0, parameters=0, with_average=False, unmatched=unmatched)
    fresh = StoredTensors.of(initial() if unmatched else {})

    def completed(loaded: StoredTensors) -> StoredTensors:
        return StoredTensors(shapes, lambda name, box: (loaded if name in matching else fresh).read(name, box)).joined(
            adapters
        )

    player.strategy.load(player.net, completed(weights))
    _copy_to_masters(player, completed(weights))
    with_average = player.ema is not None and matching <= average.shapes.keys()
    if player.ema is not None:
        player.strategy.load(player.ema.net, completed(average if with_average else weights))
    return LoadedWeights(
        tensors=len(matching),
        parameters=len(matching & parameters),
        with_average=with_average,
        unmatched=unmatched,
        unused={name: shape for name, shape in weights.shapes.items() if name not in shapes},
    )


def _copy_to_masters(player: Player, weights: StoredTensors) -> None:
    """Update the float32 copies that the optimiser steps where weights have a low precision."""
    saved = player.optimizer.state_dict()
    boxes = player.strategy.optimizer_layout(player.net)
    if not any("master" in entry for entry in saved["state"].values()):
        return
    for number, name in enumerate(optimizer_weights(player.optimizer)):
        saved["state"][number]["master"] = weights.read(name, boxes[name])
    player.optimizer.load_state_dict(saved)
