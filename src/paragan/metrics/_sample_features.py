"""Features of a set of images, the input of every metric."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SampleFeatures:
    """An extractor's outputs for real or generated images; metrics convert them to float64 on the CPU.

    logits_BK: over the classes; None where the extractor does not classify. requested_labels_B: int64 in [0, K): the
    label of a real image, or the label that a generator was given; None without classes.
    """

    features_BF: Tensor
    logits_BK: Tensor | None = None
    requested_labels_B: Tensor | None = None

    def rows(self, first: int, end: int) -> SampleFeatures:
        """Images first … end - 1."""
        rows = slice(first, end)
        logits_BK = None if self.logits_BK is None else self.logits_BK[rows]
        return SampleFeatures(
            self.features_BF[rows],
            logits_BK,
            None if self.requested_labels_B is None else self.requested_labels_B[rows],
        )

    @classmethod
    def concatenate(cls, pieces: list[SampleFeatures]) -> SampleFeatures:
        """Concatenate at least one set, in order."""
        logits = [piece.logits_BK for piece in pieces]
        labels = [piece.requested_labels_B for piece in pieces]
        return cls(torch.cat([piece.features_BF for piece in pieces]), _concatenate(logits), _concatenate(labels))

    def __len__(self) -> int:
        return len(self.features_BF)


def in_float64(values: Tensor) -> Tensor:
    """Convert to float64 on the CPU, for exact sums of products of thousands of features."""
    return values.detach().cpu().double()


def _concatenate(pieces: list[Tensor | None]) -> Tensor | None:
    tensors = [piece for piece in pieces if piece is not None]
    return torch.cat(tensors) if tensors else None
