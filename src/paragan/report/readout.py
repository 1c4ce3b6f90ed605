"""Values of charts that the script shows under the pointer."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paragan.report.plot import RunPosition
from paragan.report.series import Bucket, Series

_SPARSE_RATIO = 2  # a line is sparse if the longest one has this many times its values


@dataclass(frozen=True)
class Readout:
    """Values of the lines of a chart, None where missing.

    positions: of the values of each line, or once for all lines.
    """

    labels: tuple[str, ...] = ()
    positions: tuple[tuple[RunPosition, ...], ...] = ()
    lines: tuple[tuple[float | None, ...], ...] = ()

    def rows(self, max_rows: int) -> list[tuple[RunPosition, list[float | None]]]:
        """Return positions with the values of all lines, including the first and the last."""
        rows: list[tuple[RunPosition, list[float | None]]] = []
        for number, positions in enumerate(self.positions):
            stride = math.ceil(len(positions) / max_rows) or 1
            chosen = sorted({*range(0, len(positions), stride), len(positions) - 1} - {-1})
            rows += [(positions[i], [self._value(n, number, i) for n in range(len(self.lines))]) for i in chosen]
        return rows

    def _value(self, line: int, group: int, index: int) -> float | None:
        return self.lines[line][index] if len(self.positions) == 1 or line == group else None


def shared_readout(named: Mapping[str, Series]) -> Readout:
    """Return all lines at the positions of the longest one.

    A sparse line, such as telemetry next to steps, repeats its latest value.
    """
    longest = max(named.values(), key=lambda series: len(series.buckets)).buckets
    by_kimg = [_means_at(longest, series) for series in named.values()]
    lines = tuple(rounded_values(means.get(b.kimg) for b in longest) for means in by_kimg)
    return Readout(tuple(named), (tuple(map(RunPosition.of, longest)),), lines)


def separate_readout(named: Mapping[str, Series]) -> Readout:
    """Return every line at its positions."""
    positions = tuple(tuple(map(RunPosition.of, series.buckets)) for series in named.values())
    lines = tuple(rounded_values(b.mean for b in series.buckets) for series in named.values())
    return Readout(tuple(named), positions, lines)


def script_data(readouts: Mapping[str, Readout]) -> dict[str, Any]:
    """Return the readouts for the script; equal positions, as of all losses of a run, are stored once."""
    pool: dict[tuple[RunPosition, ...], int] = {}
    charts = {}
    for name, readout in readouts.items():
        indices = [pool.setdefault(positions, len(pool)) for positions in readout.positions]
        charts[name] = {"labels": readout.labels, "positions": indices, "lines": readout.lines}
    positions = [
        {
            "step": [position.step for position in group],
            "kimg": [position.kimg for position in group],
            "seconds": [round(position.seconds, 2) for position in group],
        }
        for group in pool
    ]
    return {"charts": charts, "positions": positions}


def rounded_values(values: Iterable[float | None]) -> tuple[float | None, ...]:
    """Return values with five digits; None for those that are not finite."""
    return tuple(float(f"{v:.5g}") if v is not None and math.isfinite(v) else None for v in values)


def _means_at(positions: Sequence[Bucket], series: Series) -> dict[float, float | None]:
    if len(series.buckets) * _SPARSE_RATIO > len(positions):
        return {bucket.kimg: bucket.mean for bucket in series.buckets}
    ends = [bucket.kimg for bucket in series.buckets]
    latest = ((position.kimg, bisect_right(ends, position.kimg) - 1) for position in positions)
    return {kimg: series.buckets[index].mean for kimg, index in latest if index >= 0}
