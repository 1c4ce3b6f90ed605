"""Plot of the schedules of pipelines: predicted, and as they ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paragan.core.files import write_bytes
from paragan.report.figure import COLOURS, render_figure
from paragan.scaling.forecast_plot import plot_format
from paragan.scaling.pipeline_plan import PipelinePlan
from paragan.scaling.pipeline_schedule import Busy, idle_share_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = (8.4, 1.1)
_RANK_INCHES = 0.25
_BAR_HEIGHT = 0.8


def write_schedule_plot(plans: Mapping[str, PipelinePlan], measured: Mapping[str, Sequence[Busy]], path: Path) -> None:
    """Draw one row of bars per rank: predicted, and below it measured, for each player."""
    panels: list[tuple[str, Sequence[Busy]]] = []
    for side, plan in plans.items():
        panels.append((f"{side.upper()}, predicted", plan.schedule))
        if measured.get(side):
            panels.append((f"{side.upper()}, measured", measured[side]))
    ranks = max(plan.stages for plan in plans.values())
    size = (_PANEL_INCHES[0], len(panels) * (_PANEL_INCHES[1] + ranks * _RANK_INCHES))

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(panels), squeeze=False)[:, 0]
        for panel, (title, busy) in zip(axes, panels, strict=True):
            _draw_panel(panel, title, busy)

    write_bytes(path, render_figure("Schedules of pipelines", size, draw, plot_format(path)))


def _draw_panel(panel: Axes, title: str, busy: Sequence[Busy]) -> None:
    for is_backward, name in ((False, "forward"), (True, "backward")):
        for rank in sorted({one.rank for one in busy}):
            mine = [one for one in busy if one.rank == rank and one.is_backward == is_backward]
            bars = [(1000 * one.start_s, 1000 * (one.stop_s - one.start_s)) for one in mine]
            label = name if rank == 0 else None
            panel.broken_barh(
                bars,
                (rank - _BAR_HEIGHT / 2, _BAR_HEIGHT),
                facecolor=COLOURS[int(is_backward)],
                edgecolor="white",
                linewidth=0.5,
                label=label,
            )
    panel.set_title(f"{title}: bubble {idle_share_of(busy):.0%}", loc="left", fontsize="small")
    panel.set_yticks(sorted({one.rank for one in busy}))
    panel.set_ylabel("rank")
    panel.set_xlabel("ms")
    panel.invert_yaxis()
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize="x-small", ncols=2, frameon=False)
