"""The players and the data of a run in words and numbers, for its `start` event."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from paragan.core.source import Source, tensor_texts
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.game.player import Player
from paragan.game.prior import Prior

if TYPE_CHECKING:
    from paragan.evaluation.fixed_tensors import FixedTensors

_PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def describe_player(player: Player) -> dict[str, Any]:
    """Describe a player: number of weights, precision, channels_last, device and strategy."""
    first = next(player.net.parameters())
    dtype = first.dtype if player.calling.dtype is None else player.calling.dtype
    shapes = player.strategy.shapes(player.net)
    sizes = {name: prod(shapes[name]) for name in player.strategy.parameter_names(player.net)}
    counts = {"weights": sum(sizes.values())}
    if player.base:
        counts["trained"] = sum(size for name, size in sizes.items() if name not in player.base)
    return {
        **counts,
        "precision": _PRECISIONS.get(dtype, str(dtype)),
        "channels_last": player.calling.channels_last,
        "device": str(first.device),
        "strategy": type(player.strategy).__module__.rpartition(".")[2],
    }


def describe_data(source: Source, samples: FixedSamples | FixedTensors | None, prior: Prior) -> dict[str, Any]:
    """Describe the data: shape and number of samples, and classes. samples: of the sheets."""
    shape = source.tensors[prior.sample_name].shape
    data: dict[str, Any] = {"shape": list(shape), "images": len(source), "class_names": list(source.class_names)}
    if samples is not None and samples.held_out is not None:
        data["held_out_pairs"] = len(samples.held_out)
    if not prior.uses_labels:
        data["labels"] = "ignored by the generator"
    if not source.is_image:
        data["tensors"] = tensor_texts(source.tensors)
    return data
