"""Drawing area of a chart; its horizontal axis counts images (kimg) or seconds of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from paragan.report.record_entry import RecordEntry
from paragan.report.scale import format_number, round_ticks
from paragan.report.series import Bucket

AXES = ("kimg", "seconds")
_TIME_UNITS = ((172_800.0, 86_400.0, "d"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))


class RunPosition(NamedTuple):
    """Point of a run on both axes, with its step."""

    step: int
    kimg: float
    seconds: float

    @classmethod
    def of(cls, place: Bucket | RecordEntry) -> RunPosition:
        """Return the position of a bucket of a series or of an entry of the record."""
        return cls(place.step, place.kimg, place.seconds)

    def on(self, axis: str) -> float:
        """Return the coordinate on an axis."""
        return self.kimg if axis == "kimg" else self.seconds


@dataclass(frozen=True)
class Plot:
    """Drawing area of a chart, width x height: lines within left..right and top..bottom.

    end: position of the right edge on each axis; the left one is 0.
    """

    width: int
    height: int
    end: RunPosition
    left: int = 44
    top: int = 10
    right_margin: int = 52
    bottom_margin: int = 24

    @property
    def right(self) -> int:
        """Right edge of the lines, pixels."""
        return self.width - self.right_margin

    @property
    def bottom(self) -> int:
        """Bottom edge of the lines, pixels."""
        return self.height - self.bottom_margin

    def x(self, value: float, axis: str) -> float:
        """Return the horizontal pixel of a coordinate on an axis."""
        share = min(1.0, max(0.0, value / self.end.on(axis)))
        return round(self.left + (self.right - self.left) * share, 1)

    def x_ticks(self, axis: str) -> list[tuple[float, str]]:
        """Return positions and texts of the ticks; the first text has the unit."""
        end = self.end.on(axis)
        unit = 1.0
        name = "kimg"
        if axis == "seconds":
            unit, name = next((unit, name) for least, unit, name in _TIME_UNITS if end >= least)
        ticks = [(self.x(t * unit, axis), format_number(t)) for t in round_ticks(0.0, end / unit, 4)]
        return [(x, f"{text} {name}" if number == 0 else text) for number, (x, text) in enumerate(ticks)]


def end_of(kimg: float, seconds: float) -> RunPosition:
    """Return the right edge of charts of runs up to there; both coordinates are positive."""
    return RunPosition(0, max(kimg, 1e-9), max(seconds, 1e-9))
