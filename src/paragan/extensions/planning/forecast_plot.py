"""Plot of a forecast: images per second, and what the time is lost to, by number of workers.

The public functions also draw the plots of `benchmarks/`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from paragan.core.errors import ConfigError
from paragan.core.files import write_bytes
from paragan.extensions.planning.plan import Forecast, ForecastPlan
from paragan.report.figure import COLOURS, render_figure, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[int, float]]  # number of workers, value
FIGURE_INCHES = (8.4, 3.6)
_FORMATS: Mapping[str, Literal["svg", "png"]] = {".svg": "svg", ".png": "png"}
_MIN_LABEL = 4.0  # per cent of a bar in which a number fits
_MIN_SHARE = 0.05  # per cent; smaller causes have no bar


def check_plot_file(path: Path) -> None:
    """Raise `ConfigError` for a file that cannot be a plot, before anything is measured for it."""
    if path.suffix.lower() not in _FORMATS:
        raise ConfigError(f"--plot {path}: unknown format {path.suffix!r}; name a file that ends in .svg or .png")
    if not path.parent.is_dir() or path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"--plot {path}: cannot write this file; name one in a folder that exists")
    require_matplotlib("--plot")


def write_forecast_plot(plan: ForecastPlan, path: Path) -> None:
    """Draw a forecast into a file; its suffix is the format. Raises `ConfigError` if that fails."""
    title = f"{plan.profile.recipe}, {plan.goal.scaling} scaling (forecast)"

    def draw(figure: Figure) -> None:
        speeds, losses = figure.subplots(1, 2)
        draw_speeds(speeds, {"forecast": plan.rows})
        draw_losses(losses, plan.rows)
        figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
        add_legend(figure)

    content = render_figure(title, FIGURE_INCHES, draw, _FORMATS[path.suffix.lower()])
    try:
        write_bytes(path, content)
    except OSError as error:
        raise ConfigError(f"--plot {path}: cannot write this file: {error.strerror}; name another one") from None


def draw_speeds(axis: Axes, rows_by_name: Mapping[str, Sequence[Forecast]]) -> None:
    """Draw images per second over workers, with the line of an efficiency of 100 %."""
    first = next(iter(rows_by_name.values()))[0]
    ideal = first.images_per_s / (first.efficiency * first.workers)
    curves = {name: [(row.workers, row.images_per_s) for row in rows] for name, rows in rows_by_name.items()}
    draw_scaling(axis, curves, lambda workers: ideal * workers)
    axis.set_title("images per second", loc="left", fontsize="medium")


def draw_scaling(axis: Axes, curves: Mapping[str, Points], linear: Callable[[int], float]) -> None:
    """Draw values over workers on logarithmic axes, and those of perfect scaling.

    The points of the last curve have their numbers.
    """
    counts = sorted({workers for points in curves.values() for workers, _ in points})
    axis.plot(counts, [linear(count) for count in counts], color="0.6", linestyle="--", label="linear")
    for colour, (name, points) in zip(cycle(COLOURS), curves.items(), strict=False):
        workers_of_points, values = zip(*points, strict=True)
        axis.plot(workers_of_points, values, color=colour, marker="o", markersize=4, label=name)
    last_points = list(curves.values())[-1]
    for workers, value in last_points:
        text = f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
        axis.annotate(text, (workers, value), (0, -13), textcoords="offset points", ha="center", fontsize="x-small")
    axis.margins(0.1, 0.15)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(counts, labels=[f"{count:,}" for count in counts])
    axis.minorticks_off()
    axis.grid(alpha=0.4)
    axis.set_xlabel("workers")


def draw_losses(axis: Axes, rows: Sequence[Forecast]) -> None:
    """Draw a bar for each number of workers: shares of the time, which add up to 100 %.

    A negative share, where more workers compute faster, is drawn below 0.
    """
    places = np.arange(len(rows))
    above = np.zeros(len(rows))
    below = np.zeros(len(rows))
    for colour, cause in zip(cycle(COLOURS), rows[0].losses, strict=False):  # all rows have the same causes
        shares = np.array([row.losses[cause] for row in rows])
        if abs(shares).max() < _MIN_SHARE:
            continue
        bars = axis.bar(places, shares, 0.7, np.where(shares >= 0, above, below), color=colour, label=cause)
        labels = [f"{share:.1f}" if abs(share) >= _MIN_LABEL else "" for share in shares]
        axis.bar_label(bars, labels, label_type="center", color="white", fontsize="x-small")
        for bar, row in zip(bars, rows, strict=True):
            bar.set_gid(f"loss-{row.workers}-{cause}")  # its id in an SVG
        above += shares.clip(min=0)
        below += shares.clip(max=0)
    axis.set_xticks(places, labels=[f"{row.workers:,}" for row in rows])
    axis.set_title("share of the time, %", loc="left", fontsize="medium")
    axis.set_xlabel("workers")


def add_legend(figure: Figure) -> None:
    """Add one legend of the curves and bars of all axes, below them."""
    figure.legend(loc="outside lower left", ncols=5, fontsize="small", frameon=False)
