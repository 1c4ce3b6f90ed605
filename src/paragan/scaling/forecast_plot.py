"""Plot of a forecast: images per second, and what the time is lost to, by number of workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paragan.core.errors import ConfigError
from paragan.core.files import write_bytes
from paragan.report.figure import COLOURS, render_figure, require_matplotlib
from paragan.scaling.forecast import Forecast
from paragan.scaling.plan import ForecastPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

Points = Sequence[tuple[int, float]]  # number of workers, value
FIGURE_INCHES = (8.4, 3.6)
_FORMATS: Mapping[str, Literal["svg", "png"]] = {".svg": "svg", ".png": "png"}
_CAUSES = ("compute", "communication", "jitter", "stragglers", "imbalance", "data", "failures")
_LEAST_LABEL = 4.0  # per cent of a bar in which a number fits
_LEAST_SHARE = 0.05  # per cent; smaller causes are not in the legend
_SMALL = "small"
_TINY = "x-small"
_BELOW_POINT = (0, -13)  # points
_POINT_STYLE: dict[str, Any] = {"textcoords": "offset points", "fontsize": _TINY, "ha": "center"}
_BAR_STYLE: dict[str, Any] = {"fontsize": _TINY, "color": "white", "ha": "center", "va": "center"}
_MAX_LINEAR_RATIO = 16  # of the numbers of workers, on linear axes
_LEGEND_CHARACTERS = 100  # of a line
_KEY_CHARACTERS = 8  # width of a line or patch of the legend


def check_plot_file(path: Path, option: str = "--plot") -> None:
    """Raise `ConfigError` for a file that cannot be a plot, before anything is measured for it."""
    if path.suffix.lower() not in _FORMATS:
        fix = "name a file that ends in .svg or .png"
        raise ConfigError(f"{option} {path}: unknown format {path.suffix!r}; {fix}")
    if not path.parent.is_dir() or path.is_dir() or not os.access(path.parent, os.W_OK):
        fix = "name one in a folder that exists"
        raise ConfigError(f"{option} {path}: cannot write this file; {fix}")
    require_matplotlib(option)


def plot_format(path: Path) -> Literal["svg", "png"]:
    """Return the format that the suffix of a plot's file means."""
    return _FORMATS[path.suffix.lower()]


def write_forecast_plot(plan: ForecastPlan, path: Path) -> None:
    """Draw a forecast into a file; its suffix is the format. Raises `ConfigError` if that fails."""
    title = f"{plan.profile.recipe}, {plan.goal.scaling} scaling (forecast)"
    file_format = _FORMATS[path.suffix.lower()]

    def draw(figure: Figure) -> None:
        draw_forecasts(figure, plan.rows, title)

    content = render_figure(title, FIGURE_INCHES, draw, file_format)
    try:
        write_bytes(path, content)
    except OSError as error:
        problem = f"cannot write this file: {error.strerror}"
        raise ConfigError(f"--plot {path}: {problem}; name another one") from None


def draw_forecasts(figure: Figure, rows: Sequence[Forecast], title: str) -> None:
    """Draw images per second next to the losses."""
    speeds, losses = figure.subplots(1, 2)
    draw_speeds(speeds, {"forecast": rows})
    draw_losses(losses, rows)
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    add_legend(figure, [speeds, losses])


def draw_speeds(axis: Axes, rows_by_name: Mapping[str, Sequence[Forecast]]) -> None:
    """Draw images per second over workers, with the line of an efficiency of 100 %."""
    curves = {}
    for name, rows in rows_by_name.items():
        curves[name] = [(row.workers, row.images_per_s) for row in rows]
    first = next(iter(rows_by_name.values()))[0]
    ideal = first.images_per_s / (first.efficiency * first.workers)
    draw_scaling(axis, curves, lambda workers: ideal * workers)
    axis.set_title("images per second", loc="left", fontsize="medium")


def draw_scaling(axis: Axes, curves: Mapping[str, Points], linear: Callable[[int], float]) -> None:
    """Draw values over workers, and those of perfect scaling.

    The points of the last curve have their numbers. Axes are logarithmic for numbers of workers
    that differ by more than a factor of 16.
    """
    counts = sorted({workers for workers, _ in next(iter(curves.values()))})
    ideal = [linear(count) for count in counts]
    axis.plot(counts, ideal, color="0.6", linestyle="--", label="linear")
    points: Points = ()
    for colour, (name, points) in zip(COLOURS, curves.items(), strict=False):
        workers, values = zip(*points, strict=True)
        axis.plot(workers, values, color=colour, marker="o", markersize=4, label=name)
    for point in points:
        axis.annotate(_number(point[1]), point, _BELOW_POINT, **_POINT_STYLE)
    axis.margins(0.1, 0.15)
    if counts[-1] > _MAX_LINEAR_RATIO * counts[0]:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xticks(counts, labels=[f"{count:,}" for count in counts])
    axis.minorticks_off()
    axis.grid(alpha=0.4)
    _label_workers(axis)


def draw_losses(axis: Axes, rows: Sequence[Forecast]) -> None:
    """Draw a bar for each number of workers: shares of the time, which add up to 100 %.

    A negative share, where more workers compute faster, is drawn below 0.
    """
    above = [0.0 for _ in rows]
    below = [0.0 for _ in rows]
    for cause in rows[0].losses:
        shares = [row.losses[cause] for row in rows]
        if max(map(abs, shares)) < _LEAST_SHARE:
            continue
        colour = COLOURS[_CAUSES.index(cause) if cause in _CAUSES else len(_CAUSES)]
        for place, (row, share) in enumerate(zip(rows, shares, strict=True)):
            ends = above if share >= 0 else below
            gid = f"loss-{row.workers}-{cause}"
            label = "" if place else cause
            axis.bar(place, share, 0.7, ends[place], color=colour, label=label, gid=gid)
            if abs(share) >= _LEAST_LABEL:
                axis.text(place, ends[place] + share / 2, f"{share:.1f}", **_BAR_STYLE)
            ends[place] += share
    axis.set_xticks(range(len(rows)), labels=[f"{row.workers:,}" for row in rows])
    axis.set_title("share of the time, %", loc="left", fontsize="medium")
    _label_workers(axis)


def add_legend(figure: FigureBase, axes: Sequence[Axes]) -> None:
    """Add one legend of the curves and bars of all axes, below them."""
    by_name = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            by_name[name] = handle
    columns = _LEGEND_CHARACTERS // (max(map(len, by_name)) + _KEY_CHARACTERS)
    style = {"ncols": max(1, columns), "fontsize": _SMALL, "frameon": False}
    figure.legend(list(by_name.values()), list(by_name), loc="outside lower left", **style)


def _label_workers(axis: Axes) -> None:
    axis.set_xlabel("workers", fontsize=_SMALL)
    axis.tick_params(labelsize=_SMALL)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
