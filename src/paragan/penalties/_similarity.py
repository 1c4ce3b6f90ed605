"""Embeddings and labels of the global batch, for losses that compare its images."""

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side


def batch_embeddings(
    context: PenaltyContext, side: Side, name: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return embeddings and labels of these rows and the batch: real images for D, fakes for G.

    Embeddings and class embeddings (B, E) and labels (B,) of these rows; embeddings (T, E) and
    labels (T,) of the batch; positions of these rows in it, (B,). Raises `ConfigError` without
    labels or without such features of D.
    """
    output = context.outputs.fake
    y_B = context.feed.label
    if side is Side.D:
        assert context.outputs.real is not None and context.feed.real is not None
        output = context.outputs.real
        y_B = context.feed.real.label
    if y_B is None:
        raise ConfigError(without_labels(name))
    layers = output.single(f"penalty {name}").layers
    features = layers[0] if len(layers) == 1 else None
    if features is None or features.dim() != 3 or features.shape[1] != 2:
        what = f"features of {len(layers)} layers" if layers else "no features"
        what = what if features is None else f"features of shape {tuple(features.shape)}"
        raise ConfigError(
            f"penalty {name} needs a D that returns embeddings (B, 2, E), but this one returns "
            f"{what}; use model contragan, reacgan, or stylegan2 with model.head=contrast, not "
            "model.conditional=false"
        )
    points_BE, proxies_BE = features.unbind(1)
    rows = context.feed.rows
    positions_B = torch.arange(rows.total, device=y_B.device)[rows.window]
    return points_BE, proxies_BE, y_B, context.whole(points_BE), context.whole(y_B), positions_B


def without_labels(name: str) -> str:
    """Return the error message of a penalty that needs labels."""
    return (
        f"penalty {name} needs labels, but this run has none; use data and a generator with "
        f"classes (num_classes > 0), or leave {name} out"
    )
