"""Settings of one player; G and D have separate ones, so that nothing is shared by accident."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from paragan.core.option_types import (
    TORCH_OPTIMISERS,
    Category,
    Choice,
    Count,
    Fraction,
    Natural,
    NotNegative,
    Positive,
)


@dataclass(frozen=True)
class OptimizerOptions:
    """Optimiser of one player."""

    name: Annotated[str, Category("optim", also=TORCH_OPTIMISERS)] = "Adam"
    """A class of torch.optim, a file of `optim/`, or a dotted path."""
    lr: Positive = 2e-4
    """Learning rate before the schedule."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the optimiser: betas, eps, weight_decay, …"""
    groups: tuple[dict[str, Any], ...] = ()
    """Parameters with other arguments, or another lr: {match: "*.bias", weight_decay: 0}. `match`
    is a pattern over parameter names; the first match counts."""

    def __post_init__(self) -> None:
        for number, group in enumerate(self.groups):
            pattern = group.get("match")
            if not isinstance(pattern, str) or not pattern:
                raise ValueError(f"groups.{number}.match is required: a pattern over parameter names, such as '*.bias'")
            lr = group.get("lr", self.lr)
            if type(lr) not in (int, float) or lr <= 0:
                raise ValueError(f"groups.{number}.lr must be a number > 0, not {lr!r}")


@dataclass(frozen=True)
class ScheduleOptions:
    """Learning-rate factor by the player's updates: linear warm-up, constant, decay."""

    name: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the decay; constant: none."""
    warmup: Natural = 0
    """Updates of the linear warm-up from 0."""
    start: Natural = 0
    """Update at which the decay starts."""
    end: Natural = 0
    """Update at which the decay reaches `final`; needed by linear and cosine."""
    final: Fraction = 0.0
    """Factor at the end of the decay."""

    def __post_init__(self) -> None:
        if self.name != "constant" and self.end <= self.start:
            raise ValueError(
                f"the decay ends at update {self.end}, which is not after its start {self.start}; "
                "set end to the number of updates of the run"
            )


@dataclass(frozen=True)
class EmaOptions:
    """Averaged weights (EMA), which are sampled and scored.

    Images are those of the player's turns: G's are 1/k of the run's with k updates of D per step.
    """

    half_life_kimg: Positive = 1.0
    """Half-life of the average in thousands of images."""
    start_kimg: NotNegative = 0.0
    """Thousands of images during which the average equals the weights."""
    ramp: Positive | None = None
    """The half-life is at most this share of the images so far, so that a long one forgets the
    start (Karras et al. 2020, "Training generative adversarial networks with limited data",
    appendix: 0.05); null: no limit."""


@dataclass(frozen=True)
class PlayerOptions:
    """Optimiser, schedule, precision, clipping, averaging and placement of one network."""

    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    """The optimiser."""
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    """The learning-rate schedule."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "pure"] = "auto"
    """Format of the computation. auto: bf16 where the hardware is fast at it. pure: the weights are
    bf16 too, with float32 copies in the optimiser. fp16 needs an accelerator (not run on one yet).
    """
    channels_last: bool | None = None
    """Whether images are NHWC in memory; null: as suits the hardware and the network."""
    max_norm: Positive | None = None
    """Clip gradients to this global norm; null: no clipping."""
    micro_batches: Count = 1
    """Micro-batches per update (gradient accumulation)."""
    updates_per_step: Count = 1
    """Updates per step; for D only."""
    ema: EmaOptions | None = None
    """Averaged weights; null: none."""
    strategy: Annotated[Choice, Category("parallel")] | None = None
    """How the network is placed on several ranks; null: `none` in one process, `ddp` on several."""
    norm_ranks: Count | None = None
    """Ranks over which batch norm takes its statistics; null: all; 1: each rank by itself."""
    reduce: Literal["fp32", "bf16"] = "fp32"
    """Format in which gradients (`local_sgd`: changes of weights) travel."""
    recompute: bool = False
    """Recompute activations of blocks in the backward pass, for less memory."""
    offload: bool = False
    """Hold the optimiser state in host memory (not run on a device yet)."""
