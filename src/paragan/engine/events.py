"""What a trainer yields between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paragan.core.types import Report
from paragan.evaluation.evaluator import Score


@dataclass(frozen=True)
class Samples:
    """Images of the fixed latents, x_BCHW in [-1, 1], `columns` to a row. rows: the class of each, if there are any.

    mode: how they were sampled.
    """

    step: int
    images: int
    x_BCHW: Tensor
    columns: int
    rows: tuple[str, ...] = ()
    mode: str = "eval"


@dataclass(frozen=True)
class Scored:
    step: int
    images: int
    score: Score


@dataclass(frozen=True)
class Saved:
    step: int
    images: int
    path: str


@dataclass(frozen=True)
class Observed:
    """How the game stands, by telemetry."""

    step: int
    images: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Evolved:
    """How the cells of a grid stand after a generation, as JSON has it (docs/report.md)."""

    step: int
    images: int
    values: Mapping[str, Any]


Event = Report | Samples | Scored | Saved | Observed | Evolved
