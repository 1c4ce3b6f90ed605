"""Settings that several penalties share. Read with a config, so this file does not import torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from paragan.core.option_types import Count, FilePath, Interval, Positive
from paragan.core.weight_schedule import Weight


@dataclass(frozen=True, kw_only=True)
class PenaltyOptions:
    """Weight, which every penalty has."""

    weight: Weight = 1.0
    """Weight of the term in the loss."""


@dataclass(frozen=True, kw_only=True)
class LazyOptions(PenaltyOptions):
    """Weight and period of a penalty on gradients or weights. Source: Karras et al. 2020 (StyleGAN2), section 3.1."""

    interval: Count = 1
    """Apply the term at every n-th update only, n times as strong (lazy regularisation)."""


@dataclass(frozen=True, kw_only=True)
class SideOptions(PenaltyOptions):
    """Weight and side."""

    side: Literal["g", "d"] = "d"
    """Network whose loss gets the term; the papers add it to both, as two entries."""


@dataclass(frozen=True, kw_only=True)
class TeacherOptions(PenaltyOptions):
    """Weight and teacher."""

    teacher: FilePath | None = None
    """The teacher's file, generator.safetensors of `paragan export`; required."""


@dataclass(frozen=True, kw_only=True)
class GammaOptions(LazyOptions):
    """Weight and period of R1 and R2."""

    weight: Weight = 10.0
    """Weight of the term in the loss: gamma of Mescheder et al. 2018. Huang et al. 2024 let it fall by a cosine."""


@dataclass(frozen=True, kw_only=True)
class FiniteDifferenceOptions(LazyOptions):
    """Weight and period of a penalty on the change of D's logit under small noise."""

    weight: Weight = 100.0
    """Weight of the term in the loss: lambda of Lin et al. 2025."""
    sigma: Positive = 0.01
    """Standard deviation of the noise, for values in [-1, 1]; for videos they use 0.1."""
    divide_by_sigma_squared: bool = False
    """Divide by sigma^2: the term is then near the squared slope, at any sigma; weight 0.5 is r1's
    with weight 1."""
    fraction: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """Share of the batch that is penalised, at the whole weight; 0.25 costs a quarter."""
