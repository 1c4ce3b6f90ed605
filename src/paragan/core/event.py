"""Events of a run: the trainer yields them, and the session passes them to the writers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened in a run.

    kind: start, step, loading, delays, traffic, phases, generation, samples, score, telemetry, advice, checkpoint,
    event or end. A step between two log points has no values, and is not written. images: real images through D so
    far. seconds: time since the session began; the session sets it. values: numbers, text, lists and maps as in JSON
    (docs/how-to/results/report.md lists them by kind). x_BCHW: images in [-1, 1], `columns` to a row; None: the event
    has no images. tensors: the samples themselves (B, *shape) if they are no images, by the name of the row. repeat_s:
    expected seconds of the next event of this kind; None: as long as this one took.
    """

    kind: str
    step: int
    images: int
    seconds: float = 0.0
    values: Mapping[str, Any] = field(default_factory=dict)
    x_BCHW: Tensor | None = None
    columns: int = 0
    repeat_s: float | None = None
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def line(self) -> dict[str, Any]:
        """The event as a line of metrics.jsonl."""
        head = {"kind": self.kind, "step": self.step, "kimg": self.images / 1000, "seconds": round(self.seconds, 2)}
        return head | dict(self.values)


class Writer(Protocol):
    """Consumer of events: a file of `writers/`, constructed as `Writer(options, folder, step)`.

    step: finished steps when the session began.
    """

    def write(self, event: Event) -> None:
        """Write one event."""

    def close(self) -> None:
        """Finish and close the files."""
