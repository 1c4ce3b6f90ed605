"""Settings of one player; G and D have separate ones, so that nothing is shared by accident."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from paragan.core.capabilities import ALL, Capability, Holder, Need, needed
from paragan.core.option_types import (
    TORCH_OPTIMISERS,
    Category,
    Choice,
    Combine,
    Count,
    FilePath,
    Fraction,
    Interval,
    Natural,
    NotNegative,
    Positive,
    not_finite_item,
)
from paragan.core.weight_schedule import Weight, WeightSchedule, has_begun, weight_at

if TYPE_CHECKING:
    from paragan.core.types import Rows


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
        groups = [{key: value for key, value in group.items() if key != "match"} for group in self.groups]
        for name, entries in (("arguments", self.arguments), ("groups", groups)):
            if (item := not_finite_item(entries, name, reads_text=True)) is not None:  # NaN passes the types
                raise ValueError(f"{item[0]} must be a finite number, not {item[1]}")
        for number, group in enumerate(self.groups):
            if not isinstance(pattern := group.get("match"), str) or not pattern:
                raise ValueError(f"groups.{number}.match is required: a pattern over parameter names, such as '*.bias'")
            lr = group.get("lr", self.lr)
            if type(lr) not in (int, float) or lr <= 0:
                raise ValueError(f"groups.{number}.lr must be a number > 0, not {lr!r}")


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """Learning-rate factor by the player's updates: linear warm-up, constant, decay."""

    name: Literal["constant", "linear", "cosine", "exponential", "multistep", "inverse_sqrt", "restarts"] = "constant"
    """Shape of the decay; constant: none. exponential: times `gamma` at every update. multistep: times
    `gamma` at each of `milestones`. inverse_sqrt: sqrt(start / update), as in Transformers. restarts:
    cosines of `period` updates, each `growth` times as long as the one before."""
    warmup: Natural = 0
    """Updates of the linear warm-up from 0."""
    start: Natural = 0
    """Update at which the decay starts; needed by inverse_sqrt."""
    end: Natural = 0
    """Update at which the decay reaches `final`; needed by linear and cosine."""
    final: Fraction = 0.0
    """Factor at the end of the decay; the lowest factor of shapes without an end."""
    gamma: Annotated[float, Interval(gt=0, le=1)] | None = None
    """Factor of one update (exponential) or milestone (multistep)."""
    milestones: tuple[Count, ...] = ()
    """Updates at which multistep multiplies the rate, in rising order."""
    period: Natural = 0
    """Updates of the first cosine of restarts."""
    growth: Count = 1
    """Length of each cosine of restarts, as a multiple of the one before."""

    def __post_init__(self) -> None:
        required = {
            "exponential": ("gamma",),
            "multistep": ("gamma", "milestones"),
            "inverse_sqrt": ("start",),
            "restarts": ("period",),
        }
        for field_name in required.get(self.name, ()):
            if not getattr(self, field_name):
                raise ValueError(f"{field_name} is required for schedule {self.name}; set it, or use cosine")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must rise, not {list(self.milestones)}; sort them")
        if self.name in ("linear", "cosine") and self.end <= self.start:
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
    """The half-life is at most this share of the images so far, so that a long one forgets the start (Karras et al.
    2020, "Training generative adversarial networks with limited data", appendix: 0.05); null: no limit."""


@dataclass(frozen=True, kw_only=True)
class AdversarialOptions:
    """When and how strongly the adversarial losses act, and that of several discriminators.

    Times are in thousands of real images (kimg) of the batches so far.
    """

    weight: Weight = 1.0
    """Weight of the adversarial loss in G's turn."""
    start_kimg: NotNegative = 0.0
    """Thousands of images after which G's adversarial loss begins.

    Before, only penalties train G, and D does not run in its turn unless one of them needs D.
    """
    d_start_kimg: NotNegative = 0.0
    """Thousands of images after which D begins to train. Before, nothing of D changes."""
    combine: Combine = "sum"
    """How losses of several discriminators are added: their sum, or the mean of each list."""
    weights: dict[str, NotNegative] = field(default_factory=dict)
    """Weight of each discriminator, or list of them, by name: {mpd: 1, msd: 0.1}; 1 for others."""

    def g_weight(self, rows: Rows) -> float:
        """Return the weight of G's adversarial loss for a batch, 0 before it begins."""
        return weight_at(self.weight, rows) if has_begun(self.start_kimg, rows) else 0.0

    @property
    def g_weight_varies(self) -> bool:
        """Whether `g_weight` ever changes."""
        return self.start_kimg > 0 or isinstance(self.weight, WeightSchedule)

    @property
    def started(self) -> AdversarialOptions:
        """These options with all terms acting from the first batch, for trials; every weight counts as 1."""
        return replace(self, weight=1.0, start_kimg=0.0, d_start_kimg=0.0)

    def started_within(self, kimg: float) -> AdversarialOptions:
        """Return these options with all terms that act within `kimg` acting from the first batch.

        For plans, which run few steps; a schedule counts as 1, and a weight of 0 stays.
        """
        start_kimg = self.start_kimg if self.start_kimg >= kimg else 0.0
        d_start_kimg = self.d_start_kimg if self.d_start_kimg >= kimg else 0.0
        return replace(self, weight=float(self.weight != 0), start_kimg=start_kimg, d_start_kimg=d_start_kimg)


@dataclass(frozen=True)
class WeightsOptions:
    """Weights of one player to start from (`g.init: FILE`), instead of the run's `init`.

    Optimiser state, clock and data order begin anew; a resume does not read them.
    """

    SHORT: ClassVar[str] = "path"  # the setting that text alone stands for: `g.init: FILE`

    path: FilePath | tuple[FilePath, ...]
    """A file of safetensors or torch.save, several with other tensors each, or a run folder or checkpoint."""
    prefix: str = ""
    """Only tensors whose names start with this are read; it is cut off their names."""
    partial: bool = False
    """Tensors that are missing, or have another shape, stay as initialised; false: refused."""
    sha256: str | None = None
    """Fingerprint of the weights, written by the run; a later start refuses other weights."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return (self.path,) if isinstance(self.path, str) else self.path


@dataclass(frozen=True, kw_only=True)
class PlayerOptions:
    """Optimiser, schedule, precision, clipping, averaging and placement of one network."""

    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    """The optimiser."""
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    """The learning-rate schedule."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "pure"] = "auto"
    """Format of the computation. auto: bf16 for D where the hardware is fast at it, else fp32. pure: the weights are
    bf16 too, with float32 copies in the optimiser. fp16 needs an accelerator."""
    channels_last: bool | None = None
    """Whether images are NHWC in memory; null: as suits the hardware and the network."""
    channel_multiple: Count = 1
    """Convolutions compute with channels padded by zeros to a multiple of this, where that is at most
    twice the work; the weights do not change. `train.layout=auto` measures it."""
    max_norm: Positive | None = None
    """Clip gradients to this global norm; null: no clipping."""
    micro_batches: Count = 1
    """Micro-batches per update (gradient accumulation)."""
    updates_per_step: Count = 1
    """Updates per step; not for G."""
    update_probability: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """Probability of an update at each batch, drawn by the batch; for D only. EnCodec: 2/3."""
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
    """Hold the optimiser state in host memory."""
    init: WeightsOptions | None = None
    """Weights to start from; null: those of the run's `init`, or fresh ones."""
    adapter: Annotated[Choice, Category("adapters")] | None = None
    """Adapters, which train instead of the weights; null: none. Checkpoints hold what trains, and the
    sha256 of the rest."""
    train: tuple[str, ...] = ()
    """Patterns over names of the parameters that train, such as "head.*", next to adapters; none: all,
    or only the adapters."""
    freeze: tuple[str, ...] = ()
    """Patterns over names of parameters that do not train, even if `train` matches them."""

    def needs(self, key: str) -> tuple[Need, ...]:
        """Return what the settings need of the strategy, the executor and the grid. key: of the player."""
        return needed(
            (self.precision == "pure", f"{key}.precision=pure", Capability.PURE),
            (self.channel_multiple > 1, f"{key}.channel_multiple={self.channel_multiple}", Capability.PADDING),
            (self.micro_batches > 1, f"{key}.micro_batches={self.micro_batches}", Capability.PARTS),
            (self.norm_ranks is not None, f"{key}.norm_ranks={self.norm_ranks}", Capability.NORM_RANKS),
            (self.recompute, f"{key}.recompute", Capability.RECOMPUTE),
            (self.offload, f"{key}.offload", Capability.OFFLOAD),
            (self.init is not None, f"{key}.init", Capability.INITIAL_WEIGHTS),
            (self.trains_part, f"{key}.{self._part}", Capability.PART),
        )

    def holders(self, key: str) -> tuple[Holder, ...]:
        """Return the settings that exclude others, with what they can be used with."""
        holders = []
        if self.recompute:
            holders.append(Holder(f"{key}.recompute", ALL - {Capability.PADDING}, f"leave {key}.recompute out"))
        if self.trains_part:
            holders.append(Holder(f"{key}.{self._part}", ALL - {Capability.PURE}, f"leave {key}.{self._part} out"))
        return tuple(holders)

    @property
    def _part(self) -> str:
        """The setting by which only a part of the network trains; empty: all of it does."""
        return next((name for name in ("adapter", "train", "freeze") if getattr(self, name)), "")

    @property
    def trains_part(self) -> bool:
        """Whether only a part of the network trains, and is in checkpoints."""
        return bool(self._part)
