"""Discriminator heads that classify (Odena et al. 2017), or embed images and classes."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.blocks import ReluHead, Wrap
from paragan.layers.conditional_norm import check_labels
from paragan.layers.precision import autocast_off
from paragan.layers.spectral_norm import spectral_norm

CONTRASTIVE_PENALTIES = ("contrastive", "data_to_data")  # losses of the embeddings


class AuxiliaryHead(nn.Module):
    """Head of features f (B, F), ReLU and sum of the map: logits w.f + b, f, class logits C f.

    Computed in at least float32; labels are ignored. C has no bias, as in published networks: as
    many parameters as the projection.
    """

    keeps_float32 = True
    trained_by = ("auxiliary",)

    def __init__(self, features: int, classes: int, wrap: Wrap) -> None:
        super().__init__()
        self.linear = wrap(nn.Linear(features, 1))
        self.classify = wrap(nn.Linear(features, classes, bias=False))

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        with autocast_off(h):
            features_BF = _relu_sum(h)
            return self.linear(features_BF).squeeze(1), features_BF, self.classify(features_BF)


class ContrastHead(nn.Module):
    """Contrastive head: features f (B, F), ReLU and sum of the map, to logits and embeddings.

    Logits w.f + b; embeddings (B, 2, E), of unit norm, of the image, A f + a, and of its class (Kang
    & Park 2020, section 3.2). Computed in at least float32.
    """

    keeps_float32 = True
    trained_by = CONTRASTIVE_PENALTIES

    def __init__(self, features: int, classes: int, embed: int, wrap: Wrap) -> None:
        super().__init__()
        self.linear = wrap(nn.Linear(features, 1))
        self.project = wrap(nn.Linear(features, embed))
        self.embed = wrap(nn.Embedding(classes, embed))

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            features_BF = _relu_sum(h)
            points = stack_points(self.project(features_BF), self.embed(check_labels(y_B, len(h))))
            return self.linear(features_BF).squeeze(1), points


def stack_points(image_BE: Tensor, class_BE: Tensor) -> Tensor:
    """Return (B, 2, E): embedding of the image, then of its class, normalised to unit norm."""
    return torch.stack([F.normalize(point, dim=1) for point in (image_BE, class_BE)], 1)


def residual_head(kind: Literal["projection", "auxiliary"], features: int, classes: int) -> nn.Module:
    """Return the last block, with spectral norm; without classes both kinds are the same."""
    block = AuxiliaryHead if kind == "auxiliary" and classes else ReluHead
    return block(features, classes, spectral_norm)


def _relu_sum(h: Tensor) -> Tensor:
    return h.relu().sum((2, 3), dtype=torch.promote_types(h.dtype, torch.float32))
