"""Prior of a cell that trains on a subset of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.types import Rows
from paragan.game.prior import Prior


@dataclass(frozen=True)
class ClassSubsetPrior(Prior):
    """Prior with labels drawn uniformly from a subset of the classes.

    Fakes of other classes would teach D that these labels are fake. classes: their numbers, at
    least one.
    """

    classes: tuple[int, ...] = ()

    @classmethod
    def of(cls, prior: Prior, classes: tuple[int, ...]) -> Prior:
        """Restrict a prior to these classes; an unconditional prior is returned unchanged."""
        if not prior.num_classes:
            return prior
        return cls(**vars(prior), classes=classes)

    def draw_on_cpu(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        z, _ = super().draw_on_cpu(stream, rows)
        indices = rng.integers(self.seed, f"{stream}/y", rows, len(self.classes))
        return z, torch.tensor(self.classes)[indices]
