"""What losses compare that look at all images of the batch: points, class points, labels, over all ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side


def compared(context: PenaltyContext, side: Side, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Points and class points (B, E) and labels (B,) of the rows here; points (T, E) and labels (T,) of the whole
    batch; where in it the rows here are, (B,). Real images are compared in D's turn, fakes in G's.

    `ConfigError` where D's verdict has no such features, or there are no labels.
    """
    verdict, y_B = context.outputs.fake, context.feed.y_B
    if side is Side.D:
        assert context.outputs.real is not None and context.feed.real is not None
        verdict, y_B = context.outputs.real, context.feed.real.y_B
    if y_B is None:
        raise ConfigError(without_labels(name))
    features = verdict.features
    if features is None or features.dim() != 3 or features.shape[1] != 2:
        found = "none" if features is None else f"features of {tuple(features.shape)}"
        told = f"penalties: {name} needs a D that compares, found {found}"
        raise ConfigError(
            f"{told}; use model contragan, reacgan, or stylegan2 with model.head=contrast, not model.conditional=false"
        )
    points_BE, proxies_BE = features.unbind(1)
    rows = context.feed.rows
    own_B = torch.arange(rows.total, device=y_B.device)[rows.window]
    return points_BE, proxies_BE, y_B, context.whole(points_BE), context.whole(y_B), own_B


def without_labels(name: str) -> str:
    """The message of a penalty that needs labels."""
    return (
        f"penalties: {name} needs labels, but this run has none; use data and a generator with classes "
        f"(num_classes > 0), or leave {name} out"
    )
