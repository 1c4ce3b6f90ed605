"""Where each arm's mixtures and single generators ended, seed by seed, and how its best mixture got there, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.plots import TONES, Curve, Panel, draw_panels, set_scale, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEASURES = ("best cell's mixture", "greedy ensemble", "all equally", "best single", "median single")
_COURSES = {"best": "best cell's mixture, 1,000 images", "median": "median cell's, 1,000 images"}


def plot(found: Mapping[str, Any]) -> str:
    """Plot the final scores above their courses. found: of `cellular_mnist_summary.summed`."""
    rows = sum(name in arm["fd"] for arm in found["arms"].values() for name in _MEASURES)
    heights = [0.25 * rows + 0.9, 3.2]

    def draw(figure: Figure) -> None:
        top, bottom = figure.subfigures(2, 1, height_ratios=heights)
        _draw_scores(top.subplots(), found)
        draw_panels(bottom, _course_panels(found))

    return to_svg("What coevolution buys on MNIST", (8.4, sum(heights)), draw)


def _draw_scores(axis: Axes, found: Mapping[str, Any]) -> None:
    """Draw a dot per seed and a bar at their mean, in a row per arm and measure."""
    names = []
    values = []
    for tone, (arm, row) in enumerate(found["arms"].items()):
        for name in _MEASURES:
            if name in row["fd"]:
                score = row["fd"][name]
                height = len(names)
                axis.plot(score["seeds"], [height] * len(score["seeds"]), "o", color=TONES[tone], alpha=0.7)
                axis.plot(score["mean"], height, "|", color=TONES[tone], markersize=14, markeredgewidth=2)
                names.append(f"{arm}: {name}")
                values += score["seeds"]
    axis.set_title("fd of 10,000 images: a dot per seed, a bar at their mean", loc="left", fontweight="bold")
    axis.set_yticks(range(len(names)), labels=names)
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.4)
    set_scale(axis.set_xscale, values)


def _course_panels(found: Mapping[str, Any]) -> list[Panel]:
    """Return panels of scores during training; the band is from the lowest to the highest seed."""
    panels = []
    for key, title in _COURSES.items():
        arms = enumerate(found["arms"].items())
        curves = [Curve(arm, _range([run["course"] for run in row["runs"]], key), tone) for tone, (arm, row) in arms]
        panels.append(Panel(f"fd: {title}", "thousands of real images of a cell", curves))
    return panels


def _range(courses: Sequence[Sequence[Mapping[str, Any]]], key: str) -> list[tuple[float, float, float]]:
    points = []
    for moments in zip(*courses, strict=False):
        values = [moment[key] for moment in moments]
        middle = (min(values) + max(values)) / 2
        points.append((moments[0]["kimg"], middle, max(values) - middle))
    return points
