"""How steep D is where it is shown images: what R1 and R2 keep small."""

from __future__ import annotations

from math import cos, pi

from torch import Tensor

from paragan.core.seams import Part
from paragan.penalties._logits import per_sample


def squared_slope(part: Part, logits: Tensor, x_BCHW: Tensor) -> Tensor:
    """|d D(x) / dx|^2 per sample, (B,). Patch logits count as their mean per sample."""
    gradient = part.input_gradient(per_sample(logits), x_BCHW)
    return gradient.flatten(1).square().sum(1)


def faded(start: float, final: float | None, kimg: float, part: Part) -> float:
    """gamma for the images of this turn: by a cosine from `start` to `final` over the first `kimg` thousand."""
    if final is None:
        return start
    images = part.feed.rows.step * part.feed.rows.total
    return final + (start - final) * (1 + cos(pi * min(1.0, images / (1000 * kimg)))) / 2
