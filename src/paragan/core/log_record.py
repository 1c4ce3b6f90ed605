"""What a run tells its writers: one value per thing that happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class LogRecord:
    """kind: start, step, delays, generation, samples, score, telemetry, advice, checkpoint, event or end.

    images: real images seen so far. seconds: since this session began. values: numbers, text, lists and maps, as JSON
    has them (docs/report.md lists which). x_BCHW: pictures in [-1, 1], `columns` to a row.
    """

    kind: str
    step: int
    images: int
    seconds: float
    values: Mapping[str, Any] = field(default_factory=dict)
    x_BCHW: Tensor | None = None
    columns: int = 0

    @property
    def line(self) -> dict[str, Any]:
        """The note as the record has it."""
        head = {"kind": self.kind, "step": self.step, "kimg": self.images / 1000, "seconds": round(self.seconds, 2)}
        return head | dict(self.values)


class Writer(Protocol):
    """A file of `writers/`: made as `Writer(options, folder, step)`, where `step` is how far the run has come."""

    def write(self, note: LogRecord) -> None: ...

    def close(self) -> None: ...
