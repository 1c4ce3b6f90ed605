"""Charts as SVG coordinates and labels; the template draws and escapes them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from paragan.report.record import RecordEntry
from paragan.report.scale import Scale, fit_scale, format_number, round_ticks
from paragan.report.series import Bucket, Series

_TONES = {"real": 0, "D": 0, "train": 0, "fake": 1, "G": 1, "held out": 2}
_NUM_TONES = 5
_SPARSE_RATIO = 2  # a line is sparse if the longest one has this many times its values
_LABEL_GAP = 13.0  # minimum distance of two labels, pixels


@dataclass(frozen=True)
class Plot:
    """Drawing area of a chart, width x height: lines within left..right and top..bottom."""

    width: int
    height: int
    kimg: float  # the right edge; the left one is 0
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

    def x(self, kimg: float) -> float:
        """Return the horizontal position of a point of the run, pixels."""
        return round(self.left + (self.right - self.left) * min(1.0, kimg / self.kimg), 1)

    def x_ticks(self) -> list[tuple[float, str]]:
        """Return positions and texts of the ticks."""
        return [(self.x(t), format_number(t)) for t in round_ticks(0.0, self.kimg, 4)]


@dataclass(frozen=True)
class Line:
    """Line of a chart.

    faint, smooth: SVG points of the range and of the mean. label_y: height of its name. bad:
    positions of non-finite values. dots: one per evaluation. best: position and text of the best
    evaluation.
    """

    label: str
    tone: int
    faint: str
    smooth: str
    label_y: float
    bad: tuple[float, ...] = ()
    dots: tuple[tuple[float, float], ...] = ()
    best: tuple[float, float, str] | None = None


@dataclass(frozen=True)
class Caption:
    """Title, note and tooltip (explanation) of a chart. floor: always within the scale."""

    id: str
    title: str
    note: str
    floor: float | None = None
    explanation: str = ""


@dataclass(frozen=True)
class Chart:
    """Lines and texts of a chart, with a readout for the script."""

    caption: Caption
    plot: Plot
    scale: Scale
    lines: tuple[Line, ...]
    readout: Mapping[str, object]  # {x: kimg, step, labels, lines: [[value or null]]}
    summary: str

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Heights and texts of the ticks, without ticks of equal text."""
        texts = {format_number(v): round(self.scale.at(v), 1) for v in self.scale.ticks()}
        return [(y, text) for text, y in texts.items()]


def series_chart(caption: Caption, plot: Plot, named: Mapping[str, Series]) -> Chart:
    """Draw series by label in one chart: a faint range per bucket, and a running mean on top."""
    buckets = [b for b in chain.from_iterable(s.buckets for s in named.values()) if b.finite]
    extremes = [*(b.low for b in buckets), *(b.high for b in buckets)]
    scale = fit_scale(extremes, plot.top, plot.bottom, caption.floor)
    ends = {label: scale.at((series.means() or [scale.low])[-1]) for label, series in named.items()}
    places = _label_heights(ends, plot)
    lines = tuple(
        Line(
            label,
            tone,
            _range_points(series, plot, scale),
            _mean_points(series, plot, scale),
            places[label],
            tuple(plot.x(bucket.kimg) for bucket in series.buckets if bucket.bad),
        )
        for (label, series), tone in zip(named.items(), _assign_tones(named), strict=True)
    )
    if clipped := [v for v in extremes if not scale.low <= v <= scale.high]:
        outliers = f"Outliers up to {format_number(max(clipped, key=abs))} are clipped."
        caption = replace(caption, note=f"{caption.note} {outliers}")
    return Chart(caption, plot, scale, lines, _readout(named), _summary(named))


def evaluation_chart(
    caption: Caption, plot: Plot, name: str, scores: Sequence[RecordEntry], best: RecordEntry | None
) -> Chart:
    """Draw a metric as one point per evaluation; a cross on the axis marks non-finite values."""
    values = [(m, m.numbers.get(name, math.nan)) for m in scores]
    finite = [(m, v) for m, v in values if math.isfinite(v)]
    scale = fit_scale([v for _, v in finite], plot.top, plot.bottom, caption.floor)
    dots = tuple((plot.x(m.kimg), round(scale.at(v), 1)) for m, v in finite)
    bad = tuple(plot.x(m.kimg) for m, v in values if not math.isfinite(v))
    drawn = zip(dots, finite, strict=True)
    marked = next(((*dot, format_number(v)) for dot, (m, v) in drawn if m is best), None)
    line = Line(name, 2, "", _points(dots), dots[-1][1] if dots else plot.bottom, bad, dots, marked)
    readout = {
        "x": [m.kimg for m, _ in values],
        "step": [m.step for m, _ in values],
        "labels": [name],
        "lines": [[_rounded(v) for _, v in values]],
    }
    last = f", last {format_number(values[-1][1])}" if values else ""
    return Chart(caption, plot, scale, (line,), readout, f"{name}: {len(values)} evaluations{last}")


def _range_points(series: Series, plot: Plot, scale: Scale) -> str:
    ends: list[tuple[float, float]] = []
    for bucket in series.buckets:
        if bucket.finite:
            values = sorted({bucket.low, bucket.high})
            ends += [(plot.x(bucket.kimg), round(scale.at(value), 1)) for value in values]
    return _points(ends)


def _mean_points(series: Series, plot: Plot, scale: Scale) -> str:
    """Return a centred mean of the heights, which is geometric on a logarithmic scale."""
    points = [(plot.x(b.kimg), scale.at(b.mean)) for b in series.buckets if b.mean is not None]
    reach = len(points) // 40
    windows = (points[max(0, i - reach) : i + reach + 1] for i in range(len(points)))
    pairs = zip(points, windows, strict=True)
    return _points([(x, round(sum(y for _, y in w) / len(w), 1)) for (x, _), w in pairs])


def _points(points: Sequence[tuple[float, float]]) -> str:
    """Return SVG points. A single point is repeated, which round line ends draw as a dot."""
    return " ".join(f"{x:g},{y:g}" for x, y in (points if len(points) != 1 else [*points, *points]))


def _label_heights(ends: Mapping[str, float], plot: Plot) -> dict[str, float]:
    """Return heights of the labels near the ends of their lines, without overlap."""
    placed: dict[str, float] = {}
    lowest = float(plot.top)
    for label, y in sorted(ends.items(), key=lambda item: item[1]):
        lowest = placed[label] = max(y, lowest)
        lowest += _LABEL_GAP
    excess = max(0.0, lowest - _LABEL_GAP - plot.bottom)
    return {label: round(y - excess, 1) for label, y in placed.items()}


def _assign_tones(labels: Mapping[str, Series]) -> list[int]:
    """Return the colour of each line: by its label, or the next free one."""
    taken = {_TONES.get(label) for label in labels}
    free = chain((n for n in range(_NUM_TONES) if n not in taken), repeat(_NUM_TONES - 1))
    return [_TONES[label] if label in _TONES else next(free) for label in labels]


def _summary(named: Mapping[str, Series]) -> str:
    lines = []
    for label, series in named.items():
        finite = [bucket for bucket in series.buckets if bucket.finite]
        low = format_number(min((bucket.low for bucket in finite), default=math.nan))
        high = format_number(max((bucket.high for bucket in finite), default=math.nan))
        lines.append(f"{label} last {format_number(series.last)}, range {low} to {high}")
    return "; ".join(lines)


def _readout(named: Mapping[str, Series]) -> dict[str, object]:
    """Return all lines at the kimg of the longest one, with null for missing values.

    A sparse line, such as telemetry next to steps, repeats its latest value.
    """
    longest = max(named.values(), key=lambda series: len(series.buckets)).buckets
    by_kimg = [_means_at(longest, series) for series in named.values()]
    return {
        "x": [b.kimg for b in longest],
        "step": [b.step for b in longest],
        "labels": list(named),
        "lines": [[_rounded(means.get(b.kimg)) for b in longest] for means in by_kimg],
    }


def _means_at(positions: Sequence[Bucket], series: Series) -> dict[float, float | None]:
    if len(series.buckets) * _SPARSE_RATIO > len(positions):
        return {bucket.kimg: bucket.mean for bucket in series.buckets}
    ends = [bucket.kimg for bucket in series.buckets]
    latest = ((position.kimg, bisect_right(ends, position.kimg) - 1) for position in positions)
    return {kimg: series.buckets[index].mean for kimg, index in latest if index >= 0}


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
