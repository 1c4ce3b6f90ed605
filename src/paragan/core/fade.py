"""Numbers that change while a run goes on, by the images that it has shown."""

from __future__ import annotations

from math import cos, pi

from paragan.core.types import Rows


def cosine_decay(start: float, final: float | None, kimg: float, rows: Rows) -> float:
    """By a cosine from `start` to `final` over the first `kimg` thousand real images of the run; None: it stays."""
    if final is None:
        return start
    return final + (start - final) * (1 + cos(pi * min(1.0, rows.step * rows.total / (1000 * kimg)))) / 2
