"""Latents of a cell that sees some of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.types import Rows
from paragan.game.prior import Prior


@dataclass(frozen=True)
class ClassSubsetPrior(Prior):
    """As the prior that it is of, but labels are uniform over these classes: D would learn that all others are false.

    classes: by number, at least one.
    """

    classes: tuple[int, ...] = ()

    @classmethod
    def of(cls, prior: Prior, classes: tuple[int, ...]) -> Prior:
        """The prior itself for an unconditional game."""
        if not prior.num_classes:
            return prior
        return cls(**vars(prior), classes=classes)

    def draw_on_cpu(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        z, _ = super().draw_on_cpu(stream, rows)
        which = rng.integers(self.seed, f"{stream}/y", rows, len(self.classes))
        return z, torch.tensor(self.classes)[which]
