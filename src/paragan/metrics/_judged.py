"""What every metric sees of a set of images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Judged:
    """Images as an extractor sees them, real or generated; float64 on the CPU by the time a metric counts them.

    logits_BK: over the classes; None where the extractor does not classify. asked_B: the class that each image should show, int64
    in [0, K): the label of a real image, the class a generator was asked for; None without classes.
    """

    features_BF: Tensor
    logits_BK: Tensor | None = None
    asked_B: Tensor | None = None

    def rows(self, first: int, end: int) -> Judged:
        """Images first … end - 1."""
        return Judged(*(None if t is None else t[first:end] for t in (self.features_BF, self.logits_BK, self.asked_B)))

    @classmethod
    def joined(cls, pieces: list[Judged]) -> Judged:
        """All pieces in order; at least one."""
        columns = zip(*((p.features_BF, p.logits_BK, p.asked_B) for p in pieces), strict=True)
        return cls(*(None if column[0] is None else torch.cat(column) for column in columns))

    def __len__(self) -> int:
        return len(self.features_BF)


def in_float64(values: Tensor) -> Tensor:
    """On the CPU in float64, where sums of products of thousands of features keep their digits."""
    return values.detach().cpu().double()
