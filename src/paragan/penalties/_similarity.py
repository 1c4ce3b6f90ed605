"""Embeddings and labels of the global batch, for losses that compare its images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side


@dataclass(frozen=True, kw_only=True)
class BatchEmbeddings:
    """D's embeddings of images, of their classes (`proxies`), and labels: B of these rows, T of the whole batch.

    positions_B: of these rows in the batch.
    """

    points_BE: Tensor
    proxies_BE: Tensor
    y_B: Tensor
    all_TE: Tensor
    all_y_T: Tensor
    positions_B: Tensor


def batch_embeddings(context: PenaltyContext, side: Side, name: str) -> BatchEmbeddings:
    """Return the embeddings of real images for D, of fakes for G; `ConfigError` without labels or such features."""
    output = context.outputs.fake
    y_B = context.feed.label
    if side is Side.D:
        assert context.outputs.real is not None and context.feed.real is not None
        output = context.outputs.real
        y_B = context.feed.real.label
    if y_B is None:
        raise ConfigError(no_labels_message(name))
    layers = output.single(f"penalty {name}").layers
    features = layers[0] if len(layers) == 1 else None
    if features is None or features.dim() != 3 or features.shape[1] != 2:
        what = f"features of {len(layers)} layers" if layers else "no features"
        if features is not None:
            what = f"features of shape {tuple(features.shape)}"
        raise ConfigError(
            f"penalty {name} needs a D that returns embeddings (B, 2, E), but this one returns {what}; use model "
            "contragan, reacgan, or stylegan2 with model.head=contrast, not model.conditional=false"
        )
    points_BE, proxies_BE = features.unbind(1)
    rows = context.feed.rows
    return BatchEmbeddings(
        points_BE=points_BE,
        proxies_BE=proxies_BE,
        y_B=y_B,
        all_TE=context.whole(points_BE),
        all_y_T=context.whole(y_B),
        positions_B=torch.arange(rows.total, device=y_B.device)[rows.window],
    )


def no_labels_message(name: str) -> str:
    """Return the error message of a penalty that needs labels."""
    return (
        f"penalty {name} needs labels, but this run has none; use data and a generator with "
        f"classes (num_classes > 0), or leave {name} out"
    )
