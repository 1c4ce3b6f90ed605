"""Settings of a run: how long, how often, how scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from paragan.core.options import Count, FilePath, Natural, NotNegative, Positive, Range


@dataclass(frozen=True)
class TrainOptions:
    """batch: real images per D update over all ranks. kimg: length of the run in thousands of real images.

    threads: of the CPU; None: torch's choice, one per core. Small networks run best on one, and do not stall when
    another program wants a core. timeout_s: seconds that a rank waits for the others, at any time. executor: networks
    run as they are written, or are compiled by torch, which takes a minute or two; graphs: also with their launches
    recorded, on an accelerator (not run on a device yet). auto: a new run measures these, with precision and
    channels_last where they are left open, and keeps to the fastest.
    """

    batch: Annotated[int, Range(least=1, most=1 << 20)] = 64
    kimg: Positive = 100.0
    threads: Annotated[int, Range(least=1, most=1024)] | None = None
    timeout_s: Positive = 300.0
    executor: Literal["eager", "compile", "graphs", "auto"] = "eager"
    change_rates: bool = False
    """Let this resume change learning rates and schedules (`--change`). Each change is recorded in `history`."""


@dataclass(frozen=True)
class InitOptions:
    """Weights of another run to start from: both networks and their averages, where names and shapes match.

    Optimiser state, clock and data order begin anew. Written `init: RUN` for short.
    """

    SHORT: ClassVar[str] = "path"

    path: FilePath
    """A run folder (its newest checkpoint), one of its checkpoints, or a file of `paragan export`."""
    sha256: str | None = None
    """Fingerprint of the weights that were read; the run writes it, and a later start refuses other weights."""


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
class EveryOptions:
    """Periods in thousands of images; 0 means never.

    log_steps: in steps; the only moments a step's numbers reach the host. check_steps: in steps; whether all ranks
    still hold the same is looked at.
    """

    log_steps: Count = 20
    sample_kimg: NotNegative = 10.0
    save_kimg: NotNegative = 10.0
    score_kimg: NotNegative = 0.0  # the end of a run is always scored
    keep: Count = 3  # checkpoints kept
    check_steps: Natural = 1000


@dataclass(frozen=True)
class ScoreOptions:
    """How a run is scored.

    mode: how a generator is sampled, for scores and pictures: `eval`, or `train-stats` as in training (statistics of
    the batch, dropout on). num_images: samples per score; data of pairs is scored against its held-out targets, by no
    extractor but `none`, which switches scores off. extractor: `judge` (a small CNN trained on this run's real images),
    `none`, or a ready-made one (an npz of weights at `weights`; None: beside the data).
    """

    num_images: Annotated[int, Range(least=6)] = 2000  # coverage looks at the 5 nearest
    extractor: Literal["judge", "mnist-cnn", "cifar-resnet20", "cifar-resnet56", "none"] = "judge"
    weights: FilePath | None = None
    mode: Literal["eval", "train-stats"] = "eval"
