"""Charts of metrics: one point per evaluation, with its interval if it has one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from paragan.report.charts import Caption, Chart, Line, Pen, Trace, label_heights, svg_points
from paragan.report.plot import AXES, Plot, RunPosition
from paragan.report.readout import Readout, rounded_values
from paragan.report.record_entry import RecordEntry
from paragan.report.scale import Scale, fit_scale, format_number

_MAX_CIRCLES = 200  # more dots are drawn as one path


@dataclass(frozen=True)
class EvaluationCurve:
    """Evaluations that compare, of one run; best: to be marked, if any."""

    pen: Pen
    entries: Sequence[RecordEntry]
    best: RecordEntry | None = None


def evaluation_chart(
    caption: Caption, plot: Plot, metric: str, curves: Sequence[EvaluationCurve], with_labels: bool = False
) -> Chart:
    """Draw a metric as one point per evaluation; a cross on the axis marks non-finite values."""
    values = [[m.numbers.get(metric, math.nan) for m in curve.entries] for curve in curves]
    entries = chain.from_iterable(curve.entries for curve in curves)
    intervals = [entry.interval(metric) or () for entry in entries]
    finite = [v for v in chain(*values, *intervals) if math.isfinite(v)]
    scale = fit_scale(finite, plot.top, plot.bottom, caption.floor)
    last = {c.pen.label: scale.at([scale.low, *_finite(v)][-1]) for c, v in zip(curves, values, strict=True)}
    heights = label_heights(last, plot) if with_labels else {}
    lines = tuple(_evaluation_line(curve, metric, plot, scale, heights.get(curve.pen.label)) for curve in curves)
    positions = tuple(tuple(map(RunPosition.of, curve.entries)) for curve in curves)
    labels = tuple(curve.pen.label for curve in curves)
    readout = Readout(labels, positions, tuple(map(rounded_values, values)))
    texts = [
        f"{label}: {len(line)} evaluations, last {format_number(line[-1])}"
        for label, line in zip(labels, values, strict=True)
        if line
    ]
    return Chart(caption, plot, scale, lines, readout, "; ".join(texts))


def _evaluation_line(curve: EvaluationCurve, metric: str, plot: Plot, scale: Scale, label_y: float | None) -> Line:
    traces = {axis: _evaluation_trace(curve, metric, plot, scale, axis) for axis in AXES}
    count = len(traces[AXES[0]].dots)
    return Line(curve.pen.label, curve.pen.tone, traces, label_y, count, curve.pen.dash)


def _evaluation_trace(curve: EvaluationCurve, metric: str, plot: Plot, scale: Scale, axis: str) -> Trace:
    values = [(m, plot.x(RunPosition.of(m).on(axis), axis), m.numbers.get(metric, math.nan)) for m in curve.entries]
    drawn = [(m, x, round(scale.at(v), 1)) for m, x, v in values if math.isfinite(v)]
    dots = tuple((x, y) for _, x, y in drawn)
    whiskers = ""
    for entry, x, _ in drawn:
        if (ends := entry.interval(metric)) is not None:
            whiskers += f"M{x:g} {scale.at(ends[0]):.1f}V{scale.at(ends[1]):.1f}"
    path = "".join(f"M{x:g} {y:g}h0" for x, y in dots) if len(dots) > _MAX_CIRCLES else ""
    marked = next(((x, y, format_number(m.numbers[metric])) for m, x, y in drawn if m is curve.best), None)
    bad = tuple(x for _, x, v in values if not math.isfinite(v))
    return Trace("", svg_points(dots), bad, dots, path, whiskers, marked)


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
