"""Descriptions of which weights a player loaded, and the refusal of those that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

from paragan.config import player_key
from paragan.core.errors import CheckpointError
from paragan.core.layout import Shape
from paragan.core.pieces import StoredTensors
from paragan.core.types import Side, player_label
from paragan.game.initial_weights import LoadedWeights
from paragan.game.player import Player
from paragan.layers.adapter import adapter_names

_MOST_NAMED = 4


def describe_loaded(side: Side, taken: LoadedWeights, most: int | None = _MOST_NAMED) -> str:
    """Return one line: how many tensors were loaded, and the first `most` (None: all) that were not."""
    name = player_label(side.value)
    if not taken.tensors:
        return f"{name} as initialised"
    average = " and the average" if taken.with_average else ""
    if not taken.left:
        loaded = f"{name} all {taken.tensors} tensors{average}"
    else:
        total = taken.tensors + len(taken.left)
        rest = _shorten([f"{key} {_shapes(*both)}" for key, both in taken.left.items()], most)
        loaded = f"{name} {taken.tensors} of {total} tensors{average}, as initialised: {rest}"
    return f"{loaded}, not used: {_shorten(list(taken.unused), most)}" if taken.unused else loaded


def table(side: Side, taken: LoadedWeights) -> str:
    """Return a line for each tensor of either place that was not loaded, after the number of the others."""
    rows = list(_rows(taken))
    width = max([len(name) for _, name, _ in rows], default=0)
    lines = [f"  {kind:<12} {name:<{width}}  {sizes}" for kind, name, sizes in rows]
    return "\n".join([f"{player_key(side.value)}.init: {taken.tensors} tensors loaded, {len(rows)} not", *lines])


def _rows(taken: LoadedWeights) -> Iterator[tuple[str, str, str]]:
    for name, (here, there) in taken.left.items():
        kind = "new" if there is None else "other shape"
        yield kind, name, _size(here) if there is None else f"{_size(here)} here, {_size(there)} there"
    for name, shape in taken.unused.items():
        yield "not used", name, _size(shape)


def refuse_misfit(
    key: str,
    side: Side,
    player: Player,
    weights: StoredTensors,
    partial: bool,
) -> None:
    """Raise `CheckpointError` for weights that do not fit; partial: only if none does.

    key: setting and files, for messages.
    """
    adapters = adapter_names(player.net)
    mine = {name: shape for name, shape in player.strategy.shapes(player.net).items() if name not in adapters}
    names = [name for name in player.strategy.parameter_names(player.net) if name not in adapters]
    if not any(weights.shapes.get(name) == mine[name] for name in names):
        here = ", ".join(list(mine)[:2])
        there = ", ".join(list(weights.shapes)[:2])
        raise CheckpointError(
            f"{key} has no weight with the name and shape of one of {player_label(side.value)}; names here are like "
            f"{here}, there like {there}: set {player_key(side.value)}.init.prefix, or give the weights of this network"
        )
    if partial:
        return
    left = {name: (shape, weights.shapes.get(name)) for name, shape in mine.items()}
    texts = [f"{name} {_shapes(*both)}" for name, both in left.items() if both[0] != both[1]]
    texts += [f"{name} (missing here)" for name in weights if name not in mine]
    if texts:
        raise CheckpointError(
            f"{key} does not fit {player_label(side.value)}: {_shorten(texts)}; pass {side.value}.init.partial=true "
            "to load the others, or give the weights of this network"
        )


def _shorten(texts: list[str], most: int | None = _MOST_NAMED) -> str:
    shown = texts[:most]
    more = f", and {len(texts) - len(shown)} more" if len(texts) > len(shown) else ""
    return f"{', '.join(shown)}{more}"


def _shapes(here: Shape, there: Shape | None) -> str:
    return "(missing there)" if there is None else f"({_size(here)} here, {_size(there)} there)"


def _size(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a number"
