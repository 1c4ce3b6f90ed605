"""Settings of one player.

Both sides have their own; nothing is shared between the optimisers unless it is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from paragan.core.options import TORCH_OPTIMISERS, Chosen, Count, Fraction, Natural, NotNegative, On, Positive


@dataclass(frozen=True)
class OptimizerOptions:
    """name: any class of torch.optim, a file of `optim/`, or a dotted path.

    arguments: passed on by keyword (betas, eps, …).
    """

    name: Annotated[str, On("optim", also=TORCH_OPTIMISERS)] = "Adam"
    lr: Positive = 2e-4
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScheduleOptions:
    """Learning-rate factor by this player's own updates.

    Linear warm-up, then constant or a decay to `final` until `end`.
    """

    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup: Natural = 0
    start: Natural = 0
    end: Natural = 0
    final: Fraction = 0.0

    def __post_init__(self) -> None:
        if self.name != "constant" and self.end <= self.start:
            raise ValueError(
                f"found a decay from update {self.start} to {self.end}, expected an end after its start: "
                "set end to the number of updates of the run"
            )


@dataclass(frozen=True)
class EmaOptions:
    """Averaged weights: half-life in thousands of images; until `start_kimg` the average simply follows the weights.

    ramp: the half-life is at most this share of the images so far (Karras et al. 2020, "Training generative adversarial
    networks with limited data", appendix: 0.05), so that a long one does not remember the start.

    Images are counted over this player's own turns: with k updates of D per step, the run's clock is k times as fast.
    """

    half_life_kimg: Positive = 1.0
    start_kimg: NotNegative = 0.0
    ramp: Positive | None = None


@dataclass(frozen=True)
class PlayerOptions:
    """One network's optimiser, schedule, precision, clipping, averaging and placement.

    precision: pure holds the weights themselves in bf16 beside the optimiser's float32 ones; fp16 needs an accelerator
    and has not been run on a device yet. parts: micro-batches per
    update. max_norm: gradient clipping by global norm. updates_per_step: for D, updates per step.

    strategy: where the network lies; `none` in one process and `ddp` on several ranks unless given. norm_ranks: over
    how many ranks batch norm takes its statistics; all unless given, 1: each rank by itself. reduce: the format in
    which gradients (`averaged`: changes of weights) travel. recompute: activations inside blocks are computed again in
    the backward, for less memory. offload: optimiser state lies in the host's memory (not run on a device
    yet). matmul: what multiplies the
    matrices of dense layers in float32 on a processor; torch's own (None) may reach half of what onednn does on AMD's.
    """

    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    precision: Literal["auto", "fp32", "bf16", "fp16", "pure"] = "auto"
    channels_last: bool | None = None  # None: chosen by the hardware and the network
    matmul: Literal["native", "onednn"] | None = None
    max_norm: Positive | None = None
    parts: Count = 1
    updates_per_step: Count = 1
    ema: EmaOptions | None = None
    strategy: Annotated[Chosen, On("parallel")] | None = None
    norm_ranks: Count | None = None
    reduce: Literal["fp32", "bf16"] = "fp32"
    recompute: bool = False
    offload: bool = False
