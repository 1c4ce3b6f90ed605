"""Scores of rows over images and emulated seconds with 95 % intervals, and losses over images, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.plots import Curve, Panel, line_plot

_AXES = (("images", 1000.0, "thousands of real images"), ("seconds", 1.0, "emulated seconds of two devices"))


def scores(found: Mapping[str, Any], groups: Sequence[Sequence[str]]) -> str:
    """Plot a table's metric over images, and over emulated seconds of two devices: a pair of panels per group.

    groups: names of rows.
    """
    tones = {name: n for n, name in enumerate(found["rows"])}
    rows = []
    for group in groups:
        names = [name for name in group if name in tones]
        panels = []
        for key, unit, x_name in _AXES:
            curves = [_score_curve(found["rows"][name], key, unit, tones[name]) for name in names]
            panels.append(Panel(f"{found['metric']} at equal {key}", x_name, curves))
        if names:
            rows.append(panels)
    return line_plot(f"{found['metric']}, mean of seeds with 95 % interval", rows)


def _score_curve(row: Mapping[str, Any], key: str, unit: float, tone: int) -> Curve:
    scored = row["curve"][1:]  # the score of the untrained networks is far off
    return Curve(row["label"], [(point[key] / unit, point["mean"], point["half"]) for point in scored], tone)


def losses(by_title: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """Plot each player's mean loss with its spread from step to step; runs by title and name."""
    rows = []
    for title, runs_by_name in by_title.items():
        panels = []
        for side in ("g", "d"):
            curves = [Curve(name, _mean_loss(runs, side), n) for n, (name, runs) in enumerate(runs_by_name.items())]
            panels.append(Panel(f"{title}: {side.upper()}'s loss", "thousands of real images", curves))
        rows.append(panels)
    return line_plot("losses: mean of seeds; band: their spread from step to step", rows)


def _mean_loss(runs: Sequence[Mapping[str, Any]], side: str) -> list[tuple[float, float, float]]:
    """Return thousands of images, mean and spread, averaged over runs."""
    points = []
    for parts in zip(*(run["losses"][side] for run in runs), strict=False):
        mean = sum(part["mean"] for part in parts) / len(parts)
        spread = sum(part["spread"] for part in parts) / len(parts)
        points.append((parts[0]["images"] / 1000, mean, spread))
    return points
