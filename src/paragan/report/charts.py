"""Charts as SVG coordinates and labels; the template draws and escapes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from paragan.report.plot import AXES, Plot, RunPosition
from paragan.report.readout import Readout, separate_readout, shared_readout
from paragan.report.scale import Scale, fit_scale, format_number
from paragan.report.series import Series

_TONES = {"real": 0, "D": 0, "train": 0, "fake": 1, "G": 1, "held out": 2}
NUM_TONES = 5
_LABEL_GAP = 13.0  # minimum distance of two labels, pixels


@dataclass(frozen=True)
class Trace:
    """Shape of a line on one axis.

    faint, smooth: SVG points of the range and of the mean. bad: positions of non-finite values.
    dots: one per evaluation. dots_path, whiskers: SVG paths of many dots, and of intervals. best:
    position and text of the best evaluation.
    """

    faint: str
    smooth: str
    bad: tuple[float, ...] = ()
    dots: tuple[tuple[float, float], ...] = ()
    dots_path: str = ""
    whiskers: str = ""
    best: tuple[float, float, str] | None = None


@dataclass(frozen=True)
class Line:
    """Line of a chart with its shape on each axis.

    label_y: height of its name; None: not written. num_dots: number of evaluations. dash: number of
    its pattern; 0 is solid.
    """

    label: str
    tone: int
    traces: Mapping[str, Trace]
    label_y: float | None = None
    num_dots: int = 0
    dash: int = 0


@dataclass(frozen=True)
class Pen:
    """Name and look of a line. tone: colour, 0 to 4. dash: pattern; 0 is solid."""

    label: str
    tone: int
    dash: int = 0


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
    readout: Readout
    summary: str

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Heights and texts of the ticks, without ticks of equal text."""
        texts = {format_number(v): round(self.scale.at(v), 1) for v in self.scale.ticks()}
        return [(y, text) for text, y in texts.items()]

    @property
    def has_best(self) -> bool:
        """Whether an evaluation is marked as the best."""
        return any(line.traces[AXES[0]].best for line in self.lines)


def series_chart(caption: Caption, plot: Plot, named: Mapping[str, Series]) -> Chart:
    """Draw series of one run by label: a faint range per bucket, and a running mean on top."""
    pens = [Pen(label, tone) for label, tone in zip(named, _assign_tones(named), strict=True)]
    buckets = [b for b in chain.from_iterable(s.buckets for s in named.values()) if b.finite]
    extremes = [*(b.low for b in buckets), *(b.high for b in buckets)]
    scale = fit_scale(extremes, plot.top, plot.bottom, caption.floor)
    if clipped := [v for v in extremes if not scale.low <= v <= scale.high]:
        outliers = f"Outliers up to {format_number(max(clipped, key=abs))} are clipped."
        caption = replace(caption, note=f"{caption.note} {outliers}")
    lines = _series_lines(pens, list(named.values()), plot, scale, _range_points)
    return Chart(caption, plot, scale, lines, shared_readout(named), _summary(named))


def means_chart(caption: Caption, plot: Plot, pens: Sequence[Pen], series: Sequence[Series]) -> Chart:
    """Draw one series of several runs, as running means."""
    named = {pen.label: one for pen, one in zip(pens, series, strict=True)}
    means = list(chain.from_iterable(one.means() for one in series))
    scale = fit_scale(means, plot.top, plot.bottom, caption.floor)
    lines = _series_lines(pens, series, plot, scale, lambda *_: "")
    return Chart(caption, plot, scale, lines, separate_readout(named), _summary(named))


def _series_lines(
    pens: Sequence[Pen],
    series: Sequence[Series],
    plot: Plot,
    scale: Scale,
    faint: Callable[[Series, Plot, Scale, str], str],
) -> tuple[Line, ...]:
    pairs = list(zip(pens, series, strict=True))
    ends = {pen.label: scale.at((one.means() or [scale.low])[-1]) for pen, one in pairs}
    heights = label_heights(ends, plot)
    has_labels = len(pairs) > 1 or len(pens[0].label) <= 8
    lines = []
    for pen, one in pairs:
        traces = {}
        for axis in AXES:
            bad = tuple(plot.x(RunPosition.of(bucket).on(axis), axis) for bucket in one.buckets if bucket.bad)
            traces[axis] = Trace(faint(one, plot, scale, axis), _mean_points(one, plot, scale, axis), bad)
        label_y = heights[pen.label] if has_labels else None
        lines.append(Line(pen.label, pen.tone, traces, label_y, dash=pen.dash))
    return tuple(lines)


def _range_points(series: Series, plot: Plot, scale: Scale, axis: str) -> str:
    ends: list[tuple[float, float]] = []
    for bucket in series.buckets:
        if bucket.finite:
            x = plot.x(RunPosition.of(bucket).on(axis), axis)
            ends += [(x, round(scale.at(value), 1)) for value in sorted({bucket.low, bucket.high})]
    return svg_points(ends)


def _mean_points(series: Series, plot: Plot, scale: Scale, axis: str) -> str:
    """Return a centred mean of the heights, which is geometric on a logarithmic scale."""
    means = [(RunPosition.of(b).on(axis), b.mean) for b in series.buckets]
    points = [(plot.x(place, axis), scale.at(mean)) for place, mean in means if mean is not None]
    reach = len(points) // 40
    windows = (points[max(0, i - reach) : i + reach + 1] for i in range(len(points)))
    pairs = zip(points, windows, strict=True)
    return svg_points([(x, round(sum(y for _, y in w) / len(w), 1)) for (x, _), w in pairs])


def svg_points(points: Sequence[tuple[float, float]]) -> str:
    """Return SVG points. A single point is repeated, which round line ends draw as a dot."""
    return " ".join(f"{x:g},{y:g}" for x, y in (points if len(points) != 1 else [*points, *points]))


def label_heights(ends: Mapping[str, float], plot: Plot) -> dict[str, float]:
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
    free = chain((n for n in range(NUM_TONES) if n not in taken), repeat(NUM_TONES - 1))
    return [_TONES[label] if label in _TONES else next(free) for label in labels]


def _summary(named: Mapping[str, Series]) -> str:
    lines = []
    for label, series in named.items():
        finite = [bucket for bucket in series.buckets if bucket.finite]
        low = format_number(min((bucket.low for bucket in finite), default=math.nan))
        high = format_number(max((bucket.high for bucket in finite), default=math.nan))
        lines.append(f"{label} last {format_number(series.last)}, range {low} to {high}")
    return "; ".join(lines)
