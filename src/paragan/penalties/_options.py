"""Settings that several penalties share. Read with a config, so this file does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paragan.core.option_types import Count, NotNegative, Positive


@dataclass(frozen=True)
class PenaltyOptions:
    """Weight and period."""

    weight: NotNegative = 1.0
    """Weight of the term in the loss."""
    interval: Count = 1
    """Apply the term at every n-th update only, n times as strong (lazy regularisation)."""


@dataclass(frozen=True)
class SideOptions(PenaltyOptions):
    """Weight, period and side."""

    side: Literal["g", "d"] = "d"
    """Network whose loss gets the term; the paper adds it to both, as two entries."""


@dataclass(frozen=True)
class FadeOptions(PenaltyOptions):
    """Weight, period and fade.

    Lazy interval: Karras et al. 2020, "Analyzing and Improving the Image Quality of StyleGAN",
    section 3.1.
    """

    weight: NotNegative = 10.0
    """Weight of the term in the loss: the paper's gamma."""
    final: NotNegative | None = None
    """Weight after the first `final_kimg`, reached by a cosine fade; null: constant.

    Source: Huang et al. 2024, appendix.
    """
    final_kimg: Positive = 20_000.0
    """Length of the fade in thousands of real images."""
