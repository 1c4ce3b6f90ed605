"""Plots as SVG, drawn by matplotlib (extra `dev`): panels of lines with bands, the same text for the same values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from paragan.report.figure import COLOURS as TONES, render_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_PANEL_INCHES = (4.2, 2.5)
_LEGEND_INCHES = 0.25  # per line of entries
_LEGEND_COLUMNS = 3
_MIN_LOG_RATIO = 50.0  # positive values that span more get a logarithmic axis


@dataclass(frozen=True)
class Curve:
    """Line of a panel. points: (x, y, half the height of the band around y). tone: index of its colour."""

    name: str
    points: Sequence[tuple[float, float, float]]
    tone: int = 0


@dataclass(frozen=True)
class Panel:
    """One pair of axes. x_name: label of the horizontal axis."""

    title: str
    x_name: str
    curves: Sequence[Curve]


def to_svg(title: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """Return a figure of `size` inches as SVG. draw: fills the figure."""
    return render_figure(title, size, draw).decode()


def line_plot(title: str, rows: Sequence[Sequence[Panel]]) -> str:
    """Return rows of panels as SVG, with a legend per row."""
    width, height = _PANEL_INCHES
    num_entries = [len({curve.name for panel in panels for curve in panel.curves}) for panels in rows]
    heights = [height + _LEGEND_INCHES * math.ceil(num / _LEGEND_COLUMNS) for num in num_entries]

    def draw(figure: Figure) -> None:
        parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)
        for part, panels in zip(parts[:, 0], rows, strict=True):
            draw_panels(part, panels)

    return to_svg(title, (width * max(map(len, rows)), sum(heights)), draw)


def draw_panels(figure: FigureBase, panels: Sequence[Panel]) -> None:
    """Draw panels next to one another, and below them a legend of all their curves."""
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel)
    by_name = {line.get_label(): line for line in chain.from_iterable(axis.lines for axis in axes)}
    style = {"loc": "outside lower left", "ncols": _LEGEND_COLUMNS, "fontsize": "small", "frameon": False}
    figure.legend(by_name.values(), by_name.keys(), **style)


def _draw_panel(axis: Axes, panel: Panel) -> None:
    axis.set_title(panel.title, loc="left", fontweight="bold", fontsize="medium")
    axis.set_xlabel(panel.x_name, fontsize="small")
    axis.tick_params(labelsize="small")
    axis.grid(axis="y", alpha=0.4)
    for curve in panel.curves:
        points = [point for point in curve.points if math.isfinite(point[1])]
        x, y, half = ([point[i] for point in points] for i in range(3))
        half = [h if math.isfinite(h) else 0.0 for h in half]
        colour = TONES[curve.tone % len(TONES)]
        axis.plot(x, y, color=colour, label=curve.name, marker="o" if len(points) == 1 else "")
        if any(half):
            low = [value - h for value, h in zip(y, half, strict=True)]
            high = [value + h for value, h in zip(y, half, strict=True)]
            axis.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
    axis.set_xlim(left=0)
    set_scale(axis.set_yscale, (point[1] for curve in panel.curves for point in curve.points))


def set_scale(set_axis: Callable[[str], None], values: Iterable[float]) -> None:
    """Make an axis logarithmic if its finite values are positive and span decades."""
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0 and max(finite) > _MIN_LOG_RATIO * min(finite):
        set_axis("log")
