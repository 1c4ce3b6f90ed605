"""Where each arm's mixtures and single generators ended, seed by seed, and how its best mixture got there, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from benchmarks import asynchronous_plots as lines
from paragan.report.scale import Scale, fit_scale, format_number

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _GAP, _FOOT = 800, 210, 20, 34, 20, 12, 40
_TONES = ("#1f6fb2", "#c8551b", "#1d7a4c", "#8a4fae")
_STYLE = """
 text { font: 12px system-ui, sans-serif; fill: #1b1c1f; } .soft { fill: #6e7178; font-size: 11px; }
 .title { font-weight: 700; } .grid { stroke: #e2dfd8; } .paper { fill: #fbfaf7; } .mean { stroke-width: 2.5; }
 @media (prefers-color-scheme: dark) {
  text { fill: #eceae5; } .soft { fill: #8e9199; } .grid { stroke: #2d3138; } .paper { fill: #14161a; }
 }
"""
_SHOWN = ("best cell's mixture", "greedy ensemble", "all equally", "best single", "median single")


def drawn(found: Mapping[str, Any]) -> str:
    """Both, one below the other. found: what `cellular_mnist_summary.summed` tells."""
    rows = [(arm, [what for what in _SHOWN if what in told["fd"]]) for arm, told in found["arms"].items()]
    floor = _TOP + sum(_ROW * len(names) + _GAP for _, names in rows)
    values = [v for told in found["arms"].values() for what in _SHOWN for v in told["fd"][what]["seeds"]]
    scale = fit_scale(values, _LEFT, _WIDTH - _RIGHT)  # across instead of down: its bottom is on the right
    title = "fd of 10,000 images: a dot for each seed, a bar for their mean"
    parts = [f'<text class="title" x="{_LEFT}" y="20">{title}</text>']
    for tick in scale.ticks():
        x = _across(scale, tick)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{floor}"/>')
        parts.append(f'<text class="soft" x="{x}" y="{floor + 14}" text-anchor="middle">{format_number(tick)}</text>')
    top = float(_TOP)
    for tone, (arm, names) in enumerate(rows):
        for what in names:
            told = found["arms"][arm]["fd"][what]
            parts.append(_row(f"{arm}: {what}", told, scale, top + _ROW / 2, _TONES[tone % len(_TONES)]))
            top += _ROW
        top += _GAP
    return _together("".join(parts), floor + _FOOT, _curves(found))


def _row(name: str, told: Mapping[str, Any], scale: Scale, y: float, colour: str) -> str:
    x = _across(scale, told["mean"])
    dots = (f'<circle fill="{colour}" cx="{_across(scale, v)}" cy="{y:g}" r="4" opacity="0.7"/>' for v in told["seeds"])
    bar = f'<line class="mean" stroke="{colour}" x1="{x}" x2="{x}" y1="{y - 8:g}" y2="{y + 8:g}"/>'
    return f'<text x="{_LEFT - 10}" y="{y + 4:g}" text-anchor="end">{escape(name)}</text>{"".join(dots)}{bar}'


def _across(scale: Scale, value: float) -> float:
    return round(scale.top + scale.bottom - scale.at(value), 1)


def _curves(found: Mapping[str, Any]) -> str:
    """Band: from the lowest to the highest seed; its middle is the line."""
    panels = []
    for key, title in (("best", "best cell's mixture, 1,000 images"), ("median", "median cell's, 1,000 images")):
        curves = [
            lines.Curve(arm, _places([run["course"] for run in told["runs"]], key), tone)
            for tone, (arm, told) in enumerate(found["arms"].items())
        ]
        panels.append(lines.Panel(f"fd: {title}", "thousands of real images of a cell", curves))
    return lines.drawn([panels], "fd of mixtures while they are trained")


def _places(courses: Sequence[Sequence[Mapping[str, Any]]], key: str) -> list[tuple[float, float, float]]:
    found = []
    for moments in zip(*courses, strict=False):
        values = [moment[key] for moment in moments]
        low, high = min(values), max(values)
        found.append((moments[0]["kimg"], (low + high) / 2, (high - low) / 2))
    return found


def _together(first: str, height: float, second: str) -> str:
    """The second drawing below the first."""
    below = float(second.split('viewBox="0 0 ')[1].split('"')[0].split()[1])
    size = f'viewBox="0 0 {_WIDTH} {height + below:g}" width="{_WIDTH}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>What coevolution buys on MNIST</title>'
    nested = second.replace("<svg ", f'<svg y="{height:g}" height="{below:g}" ', 1)
    return f'{head}<style>{_STYLE}</style><rect class="paper" width="100%" height="100%"/>{first}{nested}</svg>\n'
