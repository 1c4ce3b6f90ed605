"""Discriminator head with an auxiliary classifier (Odena et al. 2017), or a projection."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from paragan.layers.blocks import ReluHead, Wrap
from paragan.layers.precision import autocast_off
from paragan.layers.spectral_norm import spectral_norm

Kind = Literal["projection", "auxiliary"]


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
            features_BF = h.relu().sum((2, 3), dtype=torch.promote_types(h.dtype, torch.float32))
            return self.linear(features_BF).squeeze(1), features_BF, self.classify(features_BF)


def head(kind: Kind, features: int, classes: int) -> nn.Module:
    """Return the last block, with spectral norm; without classes both kinds are the same."""
    block = AuxiliaryHead if kind == "auxiliary" and classes else ReluHead
    return block(features, classes, spectral_norm)
