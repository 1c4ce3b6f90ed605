"""Settings of a run on many workers, as a document: chosen values with reasons, and predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter


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

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain maps, lists and scalars, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> ParallelPlan:
        """Return a plan from what `to_dict` returns; raises `ValueError` for other maps."""
        return TypeAdapter(cls).validate_python(tree)
