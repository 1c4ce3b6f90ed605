"""Charts as numbers and points of a drawing; the template draws and escapes them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paragan.report.record import RecordEntry
from paragan.report.scale import Scale, fit_scale, format_number, round_ticks
from paragan.report.series import Bucket, Series

_TONES = {"real": 0, "D": 0, "train": 0, "fake": 1, "G": 1, "held out": 2}
_NUM_TONES = 5
_SPARSE = 2  # so many times fewer values than the longest line
_APART = 13.0  # least distance of two labels, pixels


@dataclass(frozen=True)
class Plot:
    """The drawing area: lines lie between left..right and top..bottom of width x height, labels around it."""

    width: int
    height: int
    kimg: float  # the right edge; the left one is 0
    left: int = 44
    top: int = 10
    right_margin: int = 52
    bottom_margin: int = 24

    @property
    def right(self) -> int:
        return self.width - self.right_margin

    @property
    def bottom(self) -> int:
        return self.height - self.bottom_margin

    def x(self, kimg: float) -> float:
        return round(self.left + (self.right - self.left) * min(1.0, kimg / self.kimg), 1)

    def x_ticks(self) -> list[tuple[float, str]]:
        return [(self.x(t), format_number(t)) for t in round_ticks(0.0, self.kimg, 4)]


@dataclass(frozen=True)
class Line:
    """faint, smooth: points as SVG wants them. dots: one per evaluation. label_y: where its name stands."""

    label: str
    tone: int
    faint: str
    smooth: str
    label_y: float
    bad: tuple[float, ...] = ()
    dots: tuple[tuple[float, float], ...] = ()
    best: tuple[float, float, str] | None = None  # with its value


@dataclass(frozen=True)
class Chart:
    """One drawing. readout: for the script, {x: kimg, step, lines: [[value or null]]} in step with one another."""

    id: str
    title: str
    note: str
    summary: str
    plot: Plot
    log: bool
    y_ticks: tuple[tuple[float, str], ...]
    lines: tuple[Line, ...]
    readout: Mapping[str, object]
    explanation: str = ""  # a tooltip of the title


@dataclass(frozen=True)
class Caption:
    """What a chart is called and what it means. floor: a value that the scale always shows. explanation: a tooltip."""

    id: str
    title: str
    note: str
    floor: float | None = None
    explanation: str = ""


def series_chart(caption: Caption, plot: Plot, named: Mapping[str, Series]) -> Chart:
    """Series in one chart, by label: the range of every bucket faint, a running mean of the buckets on top."""
    extremes = [v for s in named.values() for b in s.buckets if b.finite for v in (b.low, b.high)]
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
            _non_finite_x(series, plot),
        )
        for (label, series), tone in zip(named.items(), _assign_tones(named), strict=True)
    )
    off = [v for v in extremes if not scale.low <= v <= scale.high]
    note = caption.note + (f" Spikes up to {format_number(max(off, key=abs))} are off the scale." if off else "")
    return Chart(
        caption.id, caption.title, note, _summary(named), plot, scale.log, _y_ticks(scale), lines, _readout(named)
    )


def evaluation_chart(
    caption: Caption, plot: Plot, name: str, scores: Sequence[RecordEntry], best: RecordEntry | None
) -> Chart:
    """One metric: a point per evaluation, no more and no fewer; a cross on the ground where it is not finite."""
    values = [(m, m.numbers().get(name, math.nan)) for m in scores]
    finite = [(m, v) for m, v in values if math.isfinite(v)]
    scale = fit_scale([v for _, v in finite], plot.top, plot.bottom, caption.floor)
    dots = tuple((plot.x(m.kimg), round(scale.at(v), 1)) for m, v in finite)
    bad = tuple(plot.x(m.kimg) for m, v in values if not math.isfinite(v))
    marked = next(((*dot, format_number(v)) for dot, (m, v) in zip(dots, finite, strict=True) if m is best), None)
    line = Line(name, 2, "", _points(dots), dots[-1][1] if dots else plot.bottom, bad, dots, marked)
    readout = {
        "x": [m.kimg for m, _ in values],
        "step": [m.step for m, _ in values],
        "labels": [name],
        "lines": [[_rounded(v) for _, v in values]],
    }
    summary = f"{name}: {len(values)} evaluations" + (f", last {format_number(values[-1][1])}" if values else "")
    chart = Chart(caption.id, caption.title, caption.note, summary, plot, scale.log, _y_ticks(scale), (line,), readout)
    return replace(chart, explanation=caption.explanation)


def _range_points(series: Series, plot: Plot, scale: Scale) -> str:
    ends = ((b.kimg, v) for b in series.buckets if b.finite for v in ((b.low, b.high) if b.low < b.high else (b.low,)))
    return _points([(plot.x(kimg), round(scale.at(v), 1)) for kimg, v in ends])


def _mean_points(series: Series, plot: Plot, scale: Scale) -> str:
    """A centred mean of heights, so that it is geometric where the scale is logarithmic."""
    at = [(plot.x(b.kimg), scale.at(b.mean)) for b in series.buckets if b.mean is not None]
    reach = len(at) // 40
    windows = (at[max(0, i - reach) : i + reach + 1] for i in range(len(at)))
    return _points([(x, round(sum(y for _, y in w) / len(w), 1)) for (x, _), w in zip(at, windows, strict=True)])


def _non_finite_x(series: Series, plot: Plot) -> tuple[float, ...]:
    return tuple(plot.x(bucket.kimg) for bucket in series.buckets if bucket.bad)


def _points(at: Sequence[tuple[float, float]]) -> str:
    """A point alone comes twice: with round ends that is a dot."""
    return " ".join(f"{x:g},{y:g}" for x, y in (at if len(at) != 1 else [*at, *at]))


def _y_ticks(scale: Scale) -> tuple[tuple[float, str], ...]:
    """Heights and texts. Of ticks so close that they read the same one remains."""
    texts = {format_number(v): round(scale.at(v), 1) for v in scale.ticks()}
    return tuple((y, text) for text, y in texts.items())


def _label_heights(ends: Mapping[str, float], plot: Plot) -> dict[str, float]:
    """Heights of the labels near the ends of their lines, none on top of another."""
    placed: dict[str, float] = {}
    lowest = float(plot.top)
    for label, y in sorted(ends.items(), key=lambda item: item[1]):
        lowest = placed[label] = max(y, lowest)
        lowest += _APART
    over = max(0.0, lowest - _APART - plot.bottom)
    return {label: round(y - over, 1) for label, y in placed.items()}


def _assign_tones(labels: Mapping[str, Series]) -> list[int]:
    """A colour by what the line is, or the next free one."""
    taken = {_TONES[label] for label in labels if label in _TONES}
    free = iter([n for n in range(_NUM_TONES) if n not in taken] + [_NUM_TONES - 1] * len(labels))
    return [_TONES[label] if label in _TONES else next(free) for label in labels]


def _summary(named: Mapping[str, Series]) -> str:
    told = (f"{label} last {format_number(series.last)}, between {_range(series)}" for label, series in named.items())
    return "; ".join(told)


def _range(series: Series) -> str:
    finite = [bucket for bucket in series.buckets if bucket.finite]
    return (
        f"{format_number(min(b.low for b in finite))} and {format_number(max(b.high for b in finite))}"
        if finite
        else "nothing"
    )


def _readout(named: Mapping[str, Series]) -> dict[str, object]:
    """All lines on the kimg of the longest; a line that lacks a place says null there.

    A line of far fewer values, as telemetry among steps, says its newest one up to there.
    """
    longest = max(named.values(), key=lambda series: len(series.buckets)).buckets
    by_kimg = [_means_at(longest, series) for series in named.values()]
    return {
        "x": [b.kimg for b in longest],
        "step": [b.step for b in longest],
        "labels": list(named),
        "lines": [[_rounded(means.get(b.kimg)) for b in longest] for means in by_kimg],
    }


def _means_at(places: Sequence[Bucket], series: Series) -> dict[float, float | None]:
    if len(series.buckets) * _SPARSE > len(places):
        return {bucket.kimg: bucket.mean for bucket in series.buckets}
    ends = [bucket.kimg for bucket in series.buckets]
    newest = ((place.kimg, bisect_right(ends, place.kimg) - 1) for place in places)
    return {kimg: series.buckets[number].mean for kimg, number in newest if number >= 0}


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
