"""The plan of a run: one document of what a recipe costs, before and after measuring."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from paragan.extensions.planning.cluster import Cluster
from paragan.extensions.planning.profile import RunProfile

VERSION = 7
Scaling = Literal["weak", "strong"]


@dataclass(frozen=True, kw_only=True)
class PlayerPlan:
    """Size of a player's network, and what its turns cost.

    parameters: trainable ones. buffers: elements of other state. forward_gmacs: billions of
    multiply-accumulate operations of convolutions and matrix products, for one sample; None for a
    player other than G and D, which is called by its terms alone. updates: of a step. turn_gmacs: of
    one update on the whole batch, the mean over its penalties' intervals; spectral norm, norms and
    activations are not counted. saved_by_turn: bytes saved for the backward pass of one update.
    """

    parameters: int
    buffers: int
    forward_gmacs: float | None
    updates: int
    turn_gmacs: float
    saved_by_turn: int


@dataclass(frozen=True)
class ModelPlan:
    """Players of a game by name, `g` and `d` first."""

    name: str
    players: Mapping[str, PlayerPlan]


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Peak memory of a training step, in bytes.

    terms: what the peak consists of: weights, gradients, optimizer, ema, activations, workspace
    (copies inside of kernels, and on a CPU freed blocks that the C library holds). limit_bytes:
    memory that a process may use. largest_batch: of a process, that fits into it, with the buckets of several;
    None without a limit, 0 if one sample does not fit.

    Not included: the libraries, the data set, samples and scores.
    """

    device: str
    peak_bytes: int
    terms: Mapping[str, int]
    limit_bytes: int | None = None
    largest_batch: int | None = None


@dataclass(frozen=True)
class DevicePlan:
    """One of several processes that share a batch under `ddp`, each on a device.

    devices: number of them. rows: of the batch, on each. peak_bytes: of a step; that of one process with so
    many rows, and the buckets that gradients are reduced in. largest_batch: over all; None without a limit.
    """

    devices: int
    rows: int
    peak_bytes: int
    largest_batch: int | None


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """Samples of a run. num_images: of the training split; None if only the shape is known.

    shape: of what G generates. batch_bytes: of one batch as it is read. batch: real images per update of D.
    """

    name: str
    shape: tuple[int, ...]
    num_classes: int
    num_images: int | None
    batch: int
    batch_bytes: int
    kimg: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class MeasuredTimes:
    """Times of a few steps on this machine, and the length of the run that follows from them.

    batch: of the measured steps; smaller than that of the run if those take too long. step_s, load_s: seconds of one
    step, and of reading one batch of images (None without data). turn_s: of one update of each player. kimg: the goal.
    """

    batch: int
    num_steps: int
    step_s: float
    turn_s: Mapping[str, float]
    load_s: float | None
    images_per_s: float
    kimg: float
    hours: float


@dataclass(frozen=True)
class OperatorTime:
    """An operator of torch in one turn: calls, and seconds of it alone on the device, as profiled."""

    name: str
    calls: float
    seconds: float


@dataclass(frozen=True)
class Goal:
    """Length of a run, and how it scales.

    kimg: thousands of real images. scaling: `weak`: the batch grows with the workers; `strong`: it
    is that of one worker.
    """

    kimg: float
    scaling: Scaling = "weak"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A run on one number of workers.

    batch: of D, over all workers. step_s: mean seconds of a step. efficiency: images per second and
    worker, relative to one worker without network and jitter (weak: with the same rows; strong: with
    the whole batch). link_bytes: of a step over all links, by kind. hours: to the goal. losses: shares
    of the time in per cent, which add up to 100; `compute` is what one worker would need.
    """

    workers: int
    hosts: int
    batch: int
    step_s: float
    images_per_s: float
    efficiency: float
    link_bytes: Mapping[str, float]
    hours: float
    losses: Mapping[str, float]

    @property
    def needed_bytes_per_s(self) -> float:
        """Rate of each worker that sends a step's bytes in the time of the step's computation."""
        compute_s = self.step_s * self.losses["compute"] / 100
        return sum(self.link_bytes.values()) / self.workers / compute_s


@dataclass(frozen=True)
class ForecastPlan:
    """Simulated runs on several numbers of workers of a cluster. A forecast is no measurement.

    profile: measured on one worker. cluster: with one worker. rows: one for each number of workers.
    """

    profile: RunProfile
    cluster: Cluster
    goal: Goal
    rows: tuple[Forecast, ...]


@dataclass(frozen=True)
class PlannedSetting:
    """A setting, its value and why. An empty key: something that stays as it is."""

    key: str
    value: Any
    reason: str


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Forecast of a candidate. gain: of images per second over the first candidate."""

    name: str
    step_s: float
    images_per_s: float
    gain: float
    link_bytes: float


@dataclass(frozen=True, kw_only=True)
class ParallelPlan:
    """How a run is trained on a cluster.

    fingerprint, machine: of the profile. settings: of the config, by dotted key. efficiency:
    relative to one worker with the same batch. hours: to `kimg`, thousands of real images.
    predictions: of all candidates, the chosen one first.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    fingerprint: str
    machine: str
    workers: int
    batch: int
    local_batch: int
    chosen: str
    settings: Mapping[str, Any]
    step_s: float
    images_per_s: float
    efficiency: float
    hours: float
    kimg: float
    decisions: tuple[PlannedSetting, ...]
    predictions: tuple[Prediction, ...]

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> ParallelPlan:
        """Return a plan from a map of its fields; raises `ValueError` for other maps."""
        return TypeAdapter(cls).validate_python(tree)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run costs: size, operations, memory, data and, if measured, time.

    devices: if the config has several. operators: of the turn of each side, the slowest first, if
    profiled. parallel: settings chosen for several workers, forecast: their time; both if requested.
    notes: what the numbers leave out for this recipe.
    """

    recipe: str
    model: ModelPlan
    memory: MemoryPlan
    data: DataPlan
    devices: DevicePlan | None = None
    measured: MeasuredTimes | None = None
    operators: Mapping[str, tuple[OperatorTime, ...]] = field(default_factory=dict)
    parallel: ParallelPlan | None = None
    forecast: ForecastPlan | None = None
    notes: tuple[str, ...] = ()
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain maps, lists and scalars, for JSON."""
        return dataclasses.asdict(self)
