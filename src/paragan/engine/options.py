"""Options of a run: its length and the periods of its work. This module does not import torch."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from paragan.core.option_types import Count, FilePath, Interval, Natural, NotNegative, Positive


@dataclass(frozen=True, kw_only=True)
class LoadingOptions:
    """How batches are read and decoded ahead of the training step. Nothing here changes a batch."""

    prefetch: Natural | Literal["auto"] | None = None
    """Batches that are read and decoded ahead of the training step; 0: none; auto: a controller changes this,
    `readers` and `threads` by the latency of storage. null depends on the data: remote: auto; decoded from local files:
    one more than `threads`; in memory, and all data of grids: 0."""
    threads: Annotated[int, Interval(ge=1, le=256)] | None = None
    """Threads that decode batches ahead; null: one per CPU thread of the process, at most 4."""
    readers: Annotated[int, Interval(ge=0, le=256)] = 0
    """Threads that only read files ahead, for storage that is slow to respond; 0: `threads` read."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Batch, length and execution of a run."""

    batch: Annotated[int, Interval(ge=1, le=1 << 20)] = 64
    """Real images per D update, over all ranks."""
    kimg: Positive = 100.0
    """Length of the run in thousands of real images."""
    threads: Annotated[int, Interval(ge=1, le=1024)] | None = None
    """CPU threads; null: torch's choice, one per core. Small networks run best on one."""
    deterministic: bool = False
    """Use torch's deterministic kernels: equal runs on an accelerator are equal bit for bit.

    They are slower; an operation without one ends the run. On a CPU runs are equal without it.
    """
    timeout_s: Positive = 300.0
    """Seconds that a rank waits for the others, at any time."""
    watchdog_s: Positive | None = 60.0
    """Seconds without progress, at least, after which a run writes its stacks and ends with 75; null: no watchdog.

    The limit of a phase is learned from its durations; that of checkpoints and evaluations is at
    least five times as much.
    """
    executor: Literal["eager", "compile", "graphs"] = "eager"
    """Execution of the networks: `eager`, `compile` or `graphs`.

    `compile`: by torch's compiler, which takes a minute or two. `graphs`: compiled, launches
    recorded on an accelerator.
    """
    layout: Literal["plain", "auto"] = "plain"
    """Layout of the networks: `plain`, as `channels_last` and `channel_multiple` of the players say, or `auto`.

    `auto`: a new run measures these two where they are not set, and writes what is faster.
    """
    change_rates: bool = False
    """Allow a resume to change learning rates, groups and schedules (`--change`), with a record."""


@dataclass(frozen=True)
class InitOptions:
    """Weights of another run to start from (`init: RUN`): both networks and their averages.

    Names and shapes must match; `g.init` and `d.init` give a player other weights. Optimiser state,
    clock and data order begin anew.
    """

    SHORT: ClassVar[str] = "path"  # the field that a plain string sets

    path: FilePath
    """Run folder (its newest checkpoint), one of its checkpoints, or a file of `paragan export`."""
    sha256: str | None = None
    """Fingerprint of the weights, written by the run; a later start refuses other weights."""


@dataclass(frozen=True)
class Change:
    """A setting that was changed when a run was resumed. The run writes these itself."""

    step: Natural
    """The first step of the run that is trained with the new value."""
    key: str
    """The dotted key of the setting."""
    before: Any
    """The value up to that step."""
    after: Any
    """The value from that step on."""


@dataclass(frozen=True)
class RollbackOptions:
    """Return to a good checkpoint when training collapses; most often with lower rates."""

    max_rollbacks: Natural = 3
    """Rollbacks of a run; one more collapse ends it with exit code 2."""
    lr_factor: Annotated[float, Interval(gt=0, le=1)] = 0.5
    """Factor on the learning rates of the players concerned; its square after a rollback that has not helped."""
    patience: Count = 2
    """Measurements in a row (telemetry, scores) that must show a collapse."""


@dataclass(frozen=True, kw_only=True)
class EveryOptions:
    """Periods of a run's work, in thousands of real images (kimg) or steps; 0 means never."""

    log_steps: Count = 20
    """Steps between two log points, the only moments at which numbers of a step reach the host."""
    sample_kimg: NotNegative = 10.0
    """Period of sample sheets; telemetry is measured four times as often."""
    save_kimg: NotNegative = 10.0
    """Period of checkpoints; the end of a run always writes one."""
    score_kimg: NotNegative = 0.0
    """Period of scores; the end of a run is always scored."""
    keep: Count = 3
    """Number of newest checkpoints that stay; of older ones those whose distance doubles, as 10, 20 and 40 steps."""
    check_steps: Natural = 1000
    """Steps between two checks that all ranks hold the same weights; 0: never."""

    @property
    def telemetry_kimg(self) -> float:
        """Period of telemetry, four passes of 256 images: a few per cent of training by the default, 2,500 images."""
        return self.sample_kimg / 4
