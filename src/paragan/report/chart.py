"""The one chart of all pages: `draw_chart` returns coordinates and texts, which a template draws and escapes."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Literal

from paragan.report.scale import Scale, fit_scale, format_number
from paragan.report.series import Point

AXES = ("kimg", "seconds")  # a page shows either of them
NUM_TONES = 5
View = dict[str, Any]  # values of a template
Style = Literal["ranges", "means", "evaluations"]
_TIME_UNITS = ((172_800.0, 86_400.0, "d"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))
_LABEL_GAP = 13.0  # minimum distance of two labels, pixels
_SHORT_LABEL = 8  # characters; a longer one of a single curve says what the title says
_LETTER = 7  # width of a letter of a label, pixels
_CARRIED = 0.9  # for this share of the distance of its last two points, a curve has a value after the last one
_MAX_ROWS = 40  # of a table
_MAX_EVALUATION_ROWS = 200


@dataclass(frozen=True, kw_only=True)
class ChartCurve:
    """Curve of a chart. tone: colour, 0 to 4. dash: pattern; 0 is solid. best: point to mark."""

    label: str
    points: Sequence[Point]
    tone: int
    dash: int = 0
    best: Point | None = None


@dataclass(frozen=True, kw_only=True)
class Caption:
    """Texts of a chart. floor: always within the scale. explanation: tooltip."""

    id: str
    title: str
    note: str
    floor: float | None = None
    explanation: str = ""


@dataclass(frozen=True, kw_only=True)
class Area:
    """Drawing area in pixels. scale: of the heights. end: right edge by axis; the left one is 0."""

    width: int
    height: int
    margin: int  # at the right
    scale: Scale
    end: Mapping[str, float]
    left: ClassVar[int] = 44
    top: ClassVar[int] = 10

    @property
    def right(self) -> int:
        """Right edge of the curves."""
        return self.width - self.margin

    @property
    def bottom(self) -> int:
        """Bottom edge of the curves."""
        return self.height - 24

    def x(self, place: float, axis: str) -> float:
        """Return the horizontal pixel of a position on an axis."""
        return round(self.left + (self.right - self.left) * Scale(low=0.0, high=self.end[axis]).share(place), 1)

    def y(self, value: float) -> float:
        """Return the vertical pixel of a value."""
        return round(self.bottom - (self.bottom - self.top) * self.scale.share(value), 1)

    def y_ticks(self) -> list[tuple[float, str]]:
        """Return heights and texts of the ticks, without ticks of equal text."""
        texts = {format_number(value): self.y(value) for value in self.scale.ticks()}
        return [(y, text) for text, y in texts.items()]

    def x_ticks(self, axis: str) -> list[tuple[float, str]]:
        """Return positions and texts of the ticks; the first text has the unit."""
        end = self.end[axis]
        unit, name = 1.0, "kimg"
        if axis == "seconds":
            unit, name = next((unit, name) for minimum, unit, name in _TIME_UNITS if end >= minimum)
        ticks = [(self.x(tick * unit, axis), format_number(tick)) for tick in Scale(low=0.0, high=end / unit).ticks()]
        return [(x, text if number else f"{text} {name}") for number, (x, text) in enumerate(ticks)]


@dataclass(frozen=True)
class Line:
    """A curve with its traces by axis (`_trace`). label_y: height of its name; None: not written."""

    curve: ChartCurve
    traces: Mapping[str, View]
    label_y: float | None


@dataclass(frozen=True)
class Chart:
    """Lines and texts of a chart. summary: for those who cannot see it."""

    caption: Caption
    area: Area
    lines: tuple[Line, ...]
    summary: str

    @property
    def has_best(self) -> bool:
        return any(line.curve.best for line in self.lines)


def draw_chart(
    caption: Caption,
    curves: Sequence[ChartCurve],
    end: Mapping[str, float],
    style: Style,
    size: tuple[int, int] = (360, 190),
    with_names: bool = True,
) -> Chart:
    """Draw curves on a common scale. end: right edge of both axes, as from `run_end`.

    ranges: running means over faint ranges; means: without those; evaluations: dots with intervals.
    with_names: at the ends of the curves.
    """
    points = list(chain.from_iterable(curve.points for curve in curves))
    fields = {"ranges": ("low", "high"), "means": ("value",), "evaluations": ("value", "low", "high")}[style]
    numbers = (getattr(point, name) for point in points for name in fields)
    values = [value for value in numbers if value is not None and math.isfinite(value)]
    scale = fit_scale(values, caption.floor)
    if clipped := [value for value in values if not scale.low <= value <= scale.high]:
        outliers = f"Outliers up to {format_number(max(clipped, key=abs))} are clipped."
        caption = replace(caption, note=f"{caption.note} {outliers}".strip())
    is_named = with_names and (len(curves) > 1 or len(curves[0].label) <= _SHORT_LABEL)
    longest = max(len(curve.label) for curve in curves) if is_named else 0
    margin = max(52 if with_names else 16, min(_LETTER * longest + 8, size[0] // 3))
    area = Area(width=size[0], height=size[1], margin=margin, scale=scale, end=end)
    heights = _name_heights(curves, area) if is_named else {}
    lines = []
    for curve in curves:
        traces = {axis: _trace(curve, axis, area, style) for axis in AXES}
        lines.append(Line(curve, traces, heights.get(curve.label)))
    return Chart(caption, area, tuple(lines), "; ".join(map(_summary, curves)))


def run_end(kimg: float, seconds: float) -> dict[str, float]:
    """Return the right edge of charts of runs up to there; both are positive."""
    return {"kimg": max(kimg, 1e-9), "seconds": max(seconds, 1e-9)}


def table_rows(chart: Chart) -> list[list[str]]:
    """Return a chart as rows of step, kimg and the value of each curve there, with the first and last.

    A sparse curve, such as telemetry next to steps, repeats its latest value; evaluations (dots) have more rows.
    """
    curves = [line.curve for line in chart.lines]
    places = sorted({(p.kimg, p.step) for curve in curves for p in curve.points})
    max_rows = _MAX_EVALUATION_ROWS if any(line.traces[AXES[0]]["dots"] for line in chart.lines) else _MAX_ROWS
    stride = math.ceil(len(places) / max_rows) or 1
    shown = [*places[:-1:stride], *places[-1:]]
    values = [[_value_at(curve, kimg) for kimg, _ in shown] for curve in curves]
    texts = [["–" if v is None else format_number(v) for v in column] for column in values]
    return [[f"{step:,}", format_number(kimg), *row] for (kimg, step), *row in zip(shown, *texts, strict=True)]


def script_data(charts: Iterable[Chart]) -> View:
    """Return the values under the pointer; equal places, as of all losses of a run, are stored once."""
    pool: dict[tuple[tuple[int, float, float], ...], int] = {}
    lines: dict[str, list[dict[str, Any]]] = {}
    for chart in charts:
        for curve in (line.curve for line in chart.lines):
            number = pool.setdefault(tuple((p.step, p.kimg, p.seconds) for p in curve.points), len(pool))
            values = [None if p.value is None else float(f"{p.value:.5g}") for p in curve.points]
            lines.setdefault(chart.caption.id, []).append({"label": curve.label, "places": number, "values": values})
    places = []
    for group in pool:
        steps, kimg, seconds = zip(*group, strict=True) if group else ((), (), ())
        places.append({"step": steps, "kimg": kimg, "seconds": [round(s, 2) for s in seconds]})
    return {"charts": lines, "places": places}


def _value_at(curve: ChartCurve, kimg: float) -> float | None:
    """Return the latest value up to there; None before the first point, and long after the last."""
    places = [point.kimg for point in curve.points]
    index = bisect_right(places, kimg) - 1
    carried = _CARRIED * (places[-1] - places[-2]) if len(places) > 1 else 0.0
    return curve.points[index].value if index >= 0 and kimg <= places[-1] + carried else None


def _trace(curve: ChartCurve, axis: str, area: Area, style: Style) -> View:
    """Return the shape of a curve on one axis. band, line: SVG points. dots, whiskers, bad: SVG paths.

    band: ranges. whiskers: intervals. bad: crosses at values that are not finite. best: position and text of the
    marked point.
    """
    places = [(area.x(getattr(point, axis), axis), point) for point in curve.points]
    drawn = [(x, area.y(point.value)) for x, point in places if point.value is not None]
    ranges = [(x, point) for x, point in places if point.low <= point.high]  # an empty range is from inf to -inf
    band = dots = whiskers = ""
    if style == "evaluations":
        dots = "".join(f"M{x:g} {y:g}h0" for x, y in drawn)  # lines of length 0, whose round ends are dots
        whiskers = "".join(f"M{x:g} {area.y(point.low):g}V{area.y(point.high):g}" for x, point in ranges)
    else:
        drawn = _smooth(drawn)
    if style == "ranges":  # a zigzag of vertical strokes, which a wide faint line fills
        band = _svg_points([(x, area.y(v)) for x, point in ranges for v in sorted({point.low, point.high})])
    best = ((x, area.y(v), format_number(v)) for x, p in places if p is curve.best and (v := p.value) is not None)
    return {
        "band": band,
        "line": _svg_points(drawn),
        "dots": dots,
        "whiskers": whiskers,
        "bad": "".join(f"M{x - 2.5:g} {area.bottom - 5.5}l5 5m0-5l-5 5" for x, point in places if point.bad),
        "best": next(best, None),
    }


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a centred mean of the heights, which is geometric on a logarithmic scale."""
    reach = len(points) // 40
    windows = (points[max(0, i - reach) : i + reach + 1] for i in range(len(points)))
    return [(x, round(sum(y for _, y in w) / len(w), 1)) for (x, _), w in zip(points, windows, strict=True)]


def _svg_points(points: Sequence[tuple[float, float]]) -> str:
    """Return SVG points. A single point is repeated, which round line ends draw as a dot."""
    return " ".join(f"{x:g},{y:g}" for x, y in (points if len(points) != 1 else [*points, *points]))


def _name_heights(curves: Sequence[ChartCurve], area: Area) -> dict[str, float]:
    """Return heights of the names near the ends of their curves, without overlap."""
    ends = {
        c.label: area.y(next((p.value for p in reversed(c.points) if p.value is not None), -math.inf)) for c in curves
    }
    # each name below the one above it; then all move up by what the lowest exceeds the area
    placed: dict[str, float] = {}
    lowest = float(area.top)
    for label, y in sorted(ends.items(), key=lambda item: item[1]):
        lowest = placed[label] = max(y, lowest)
        lowest += _LABEL_GAP
    excess = max(0.0, lowest - _LABEL_GAP - area.bottom)
    return {label: round(y - excess, 1) for label, y in placed.items()}


def _summary(curve: ChartCurve) -> str:
    values = [point.value for point in curve.points if point.value is not None]
    low = format_number(min(values, default=math.nan))
    high = format_number(max(values, default=math.nan))
    last = curve.points[-1].value if curve.points else None
    return f"{curve.label} last {format_number(math.nan if last is None else last)}, from {low} to {high}"
