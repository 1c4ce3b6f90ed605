"""Heads of StyleGAN2's discriminator: unconditional, projection, and contrastive."""

from __future__ import annotations

from math import sqrt

from torch import Tensor, nn

from paragan.layers.equalised import EqualLinear, leaky_relu_
from paragan.models._heads import CONTRASTIVE_PENALTIES, stack_points
from paragan.models._style import ClassVector, mapping_layers


class UnconditionalHead(nn.Module):
    """Linear head: features_BF to logits_B, and the features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.out = EqualLinear(features, 1)

    def forward(self, features_BF: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.out(features_BF).squeeze(1), features_BF


class ClassDirection(nn.Module):
    """Class embedding followed by mapping layers: y_B to (B, length)."""

    def __init__(self, classes: int, length: int, depth: int) -> None:
        super().__init__()
        self.embed = ClassVector(classes, length)
        self.layers = mapping_layers(length, length, depth)

    def forward(self, y_B: Tensor | None, count: int) -> Tensor:
        h = self.embed(y_B, count)
        for layer in self.layers:
            h = leaky_relu_(layer(h))
        return h


class ProjectionHead(nn.Module):
    """Projection head: features_BF to logits_B by the label's direction, and the features."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.out = EqualLinear(features, features)
        self.towards = ClassDirection(classes, features, depth=8)

    def forward(self, features_BF: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        towards = self.towards(y_B, len(features_BF))
        return (self.out(features_BF) * towards).sum(1) / sqrt(towards.shape[1]), features_BF


class ContrastiveHead(nn.Module):
    """Contrastive head: features_BF to logits_B, and embeddings (B, 2, embed) as in `_heads`."""

    trained_by = CONTRASTIVE_PENALTIES

    def __init__(self, features: int, classes: int, embed: int) -> None:
        super().__init__()
        self.out = EqualLinear(features, 1)
        self.project = EqualLinear(features, embed)
        self.towards = ClassDirection(classes, embed, depth=1)

    def forward(self, features_BF: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        points = stack_points(self.project(features_BF), self.towards(y_B, len(features_BF)))
        return self.out(features_BF).squeeze(1), points
