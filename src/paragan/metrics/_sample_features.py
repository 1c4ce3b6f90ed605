"""What every metric sees of a set of images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SampleFeatures:
    """Images as an extractor sees them, real or generated; float64 on the CPU by the time a metric counts them.

    logits_BK: over the classes; None where the extractor does not classify. asked_B: the class that each image should
    show, int64 in [0, K): the label of a real image, the class a generator was asked for; None without classes.
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
        """All pieces in order; at least one."""
        logits, asked = [p.logits_BK for p in pieces], [p.requested_labels_B for p in pieces]
        return cls(torch.cat([p.features_BF for p in pieces]), _joined(logits), _joined(asked))

    def __len__(self) -> int:
        return len(self.features_BF)


def in_float64(values: Tensor) -> Tensor:
    """On the CPU in float64, where sums of products of thousands of features keep their digits."""
    return values.detach().cpu().double()


def _joined(pieces: list[Tensor | None]) -> Tensor | None:
    there = [piece for piece in pieces if piece is not None]
    return torch.cat(there) if there else None
