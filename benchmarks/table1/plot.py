"""Bar chart of epoch times relative to the baseline, with the poster's numbers as rings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.plots import TONES, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = (0.25, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0)
_FASTER, _SLOWER, _POSTER, *_ = TONES


@dataclass(frozen=True)
class Bar:
    """Time of a row relative to the baseline. low, high: 95 % interval. poster: the poster's ratio."""

    name: str
    median: float
    low: float
    high: float
    poster: float | None = None


def plot(panels: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """The panels, one below the other, as SVG. Bars go left (faster) or right (slower) from 1, on a log axis."""
    heights = [1 + len(bars) for _, bars in panels]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights, sharex=True)
        for axis, (title, bars) in zip(axes[:, 0], panels, strict=True):
            _draw(axis, title, bars)
        axes[0, 0].set_xlim(_limits(panels))
        figure.supxlabel("epoch time / baseline; line: 95 % interval; ring: poster", fontsize="small")

    return to_svg("Epoch time relative to the baseline", (9, 0.35 * sum(heights) + 1.0), draw)


def _draw(axis: Axes, title: str, bars: Sequence[Bar]) -> None:
    axis.set_title(title, loc="left", fontweight="bold")
    axis.set_xscale("log")
    axis.set_xticks(_TICKS, labels=[f"{tick:g}" for tick in _TICKS])
    axis.minorticks_off()
    axis.grid(axis="x", alpha=0.4)
    axis.axvline(1.0, color="0.3", linewidth=1)
    for row, bar in enumerate(bars):
        colour = _FASTER if bar.median < 1 else _SLOWER
        axis.barh(row, bar.median - 1, left=1.0, height=0.6, color=colour)
        axis.plot([bar.low, bar.high], [row, row], color="black", linewidth=1)
        label_x = max(1.0, bar.median, bar.high)
        axis.annotate(f"{bar.median:.2f}", (label_x, row), (6, 0), textcoords="offset points", va="center")
        if bar.poster is not None:
            axis.plot(bar.poster, row, "o", fillstyle="none", color=_POSTER, gid=f"poster {title} {row}")
    axis.set_yticks(range(len(bars)), labels=[bar.name for bar in bars])
    axis.invert_yaxis()


def _limits(panels: Sequence[tuple[str, Sequence[Bar]]]) -> tuple[float, float]:
    """Ends of the shared horizontal axis."""
    bars = [bar for _, bars in panels for bar in bars]
    values = [value for bar in bars for value in (bar.low, bar.high, bar.poster) if value]
    return min([0.7, *values]) / 1.08, max([1.5, *values]) * 1.2
