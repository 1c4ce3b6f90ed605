"""Weights of loss terms that change during a run. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, isfinite, pi
from typing import TYPE_CHECKING, Literal

from paragan.core.option_types import NotNegative

if TYPE_CHECKING:
    from paragan.core.types import Rows


@dataclass(frozen=True, kw_only=True)
class WeightSchedule:
    """A weight that changes from `start` to `final`, equal on all ranks and after a resume.

    Time is in thousands of real images (kimg) of the batches so far.
    """

    start: NotNegative
    """Weight before the change."""
    final: NotNegative
    """Weight after the change."""
    from_kimg: NotNegative = 0.0
    """Thousands of real images at which the change begins."""
    to_kimg: NotNegative | None = None
    """Thousands of real images at which the change ends; null: at once, with shape step."""
    shape: Literal["step", "linear", "cosine"] = "linear"
    """Shape of the change."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(f"{name} must be a finite number, not {value}")
        if self.shape == "step" and self.to_kimg is not None:
            raise ValueError(f"to_kimg={self.to_kimg:g} has no effect with shape step; leave it out")
        if self.shape != "step" and images_of(self.to_kimg or 0) <= images_of(self.from_kimg):
            raise ValueError(
                f"to_kimg must be greater than from_kimg={self.from_kimg:g} for shape {self.shape}; "
                "set to_kimg to the end of the change, or shape to step"
            )

    def __str__(self) -> str:
        end = "" if self.to_kimg is None else f" to {self.to_kimg:g}"
        return f"{self.start:g} to {self.final:g}, {self.shape} from {self.from_kimg:g}{end} kimg"


Weight = NotNegative | WeightSchedule


def weight_at(weight: float | WeightSchedule, rows: Rows) -> float:
    """Return the weight for a batch. rows: of the batch, on any rank."""
    if not isinstance(weight, WeightSchedule):
        return weight
    if weight.shape == "step":
        return weight.final if has_begun(weight.from_kimg, rows) else weight.start
    begin = images_of(weight.from_kimg)
    length = images_of(weight.to_kimg or 0) - begin
    progress = min(1.0, max(0, images_before(rows) - begin) / length)
    left = 1 - progress if weight.shape == "linear" else (1 + cos(pi * progress)) / 2
    return weight.final + (weight.start - weight.final) * left


def has_begun(start_kimg: float, rows: Rows) -> bool:
    """Return whether the batches before this one have that many thousand real images."""
    return images_before(rows) >= images_of(start_kimg)


def images_before(rows: Rows) -> int:
    """Return the real images of all batches before this one, over all ranks."""
    return rows.step * rows.total


def images_of(kimg: float) -> int:
    """Return a number of real images from thousands of them."""
    return round(kimg * 1000)
