"""Lines with their 95 % intervals, as SVG: scores of rows over images and emulated seconds, losses over images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from paragan.report.scale import Scale, fit_scale, format_number, round_ticks

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 400, 230, 52, 14, 34, 34, 8
_LINE, _ABREAST = 18, 3  # of a legend
_TONES = ("#1f6fb2", "#c8551b", "#1d7a4c", "#8a4fae", "#6b7078", "#a8871b", "#b23a6a", "#2b8f99")
_STYLE = """
 text { font: 12px system-ui, sans-serif; fill: #1b1c1f; } .soft { fill: #6e7178; font-size: 11px; }
 .title { font-weight: 700; } .grid { stroke: #e2dfd8; } .paper { fill: #fbfaf7; }
 .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .band { opacity: 0.13; } .bar { stroke-width: 1; }
 @media (prefers-color-scheme: dark) {
  text { fill: #eceae5; } .soft { fill: #8e9199; } .grid { stroke: #2d3138; } .paper { fill: #14161a; }
 }
"""


@dataclass(frozen=True)
class Curve:
    """places: (x, y, half of y's interval) from left to right. tone: a colour by number."""

    name: str
    places: Sequence[tuple[float, float, float]]
    tone: int = 0


@dataclass(frozen=True)
class Panel:
    title: str
    across: str
    curves: Sequence[Curve]


def scores(found: Mapping[str, Any], groups: Sequence[Sequence[str]]) -> str:
    """A table's metric over images, and over emulated seconds of two devices; rows by name, a pair of panels each."""
    drawn_rows = []
    tones = {name: n for n, name in enumerate(found["rows"])}
    for names in groups:
        rows = {tones[name]: found["rows"][name] for name in names if name in tones}
        panels = [
            Panel(f"{found['metric']} at equal {across}", title, _by(rows, across, unit))
            for across, unit, title in (
                ("images", 1000.0, "thousands of real images"),
                ("seconds", 1.0, "emulated seconds of two devices"),
            )
        ]
        drawn_rows += [panels] if rows else []
    return drawn(drawn_rows, f"{found['metric']}, mean of seeds with 95 % interval")


def losses(panels: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """By scheme and optimisers: runs, of which each player's mean loss and its step-to-step spread are drawn."""
    rows = []
    for title, by_row in panels.items():
        drawn_row = []
        for side in ("g", "d"):
            curves = [Curve(name, _of_losses(runs, side), n) for n, (name, runs) in enumerate(by_row.items())]
            drawn_row.append(Panel(f"{title}: {side.upper()}'s loss", "thousands of real images", curves))
        rows.append(drawn_row)
    return drawn(rows, "losses: mean of seeds; band: their spread from step to step")


def drawn(rows: Sequence[Sequence[Panel]], what: str) -> str:
    """Panels in rows, one legend per panel row."""
    parts, top = [], 0.0
    for panels in rows:
        for column, panel in enumerate(panels):
            parts.append(_panel(panel, column * _WIDTH, top))
        top += _HEIGHT
        parts.append(_legend(panels[0].curves, top))
        top += _LINE * math.ceil(len(panels[0].curves) / _ABREAST) + _GAP
    width = _WIDTH * max(map(len, rows))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top:g}" width="{width}" role="img">'
    paper = '<rect class="paper" width="100%" height="100%"/>'
    return f"{head}<title>{escape(what)}</title><style>{_STYLE}</style>{paper}{''.join(parts)}</svg>\n"


def _panel(panel: Panel, left: float, top: float) -> str:
    shown = [place for curve in panel.curves for place in curve.places if math.isfinite(place[1])]
    end = max((x for x, _, _ in shown), default=1.0) or 1.0
    ends = [y + sign * (half if math.isfinite(half) else 0) for _, y, half in shown for sign in (-1, 1)]
    positive = all(y > 0 for _, y, _ in shown)
    low = min((y for _, y, _ in shown), default=0.0)
    scale = fit_scale([max(v, 0.5 * low) if positive else v for v in ends], top + _TOP, top + _HEIGHT - _BOTTOM)
    right = left + _WIDTH - _RIGHT

    def across(x: float) -> float:
        return round(left + _LEFT + (right - left - _LEFT) * x / end, 1)

    parts = [f'<text class="title" x="{left + _LEFT}" y="{top + 20}">{escape(panel.title)}</text>']
    for tick in scale.ticks():
        y = round(scale.at(tick), 1)
        parts.append(f'<line class="grid" x1="{left + _LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="soft" x="{left + _LEFT - 6}" y="{y + 4}" text-anchor="end">{format_number(tick)}</text>'
        )
    floor = top + _HEIGHT - _BOTTOM
    for tick in round_ticks(0.0, end, 4):
        parts.append(
            f'<text class="soft" x="{across(tick)}" y="{floor + 14}" text-anchor="middle">{format_number(tick)}</text>'
        )
    middle = (left + _LEFT + right) / 2
    parts.append(f'<text class="soft" x="{middle}" y="{floor + 28}" text-anchor="middle">{escape(panel.across)}</text>')
    parts += [_curve(curve, across, scale) for curve in panel.curves]
    return "".join(parts)


def _curve(curve: Curve, across: Any, scale: Scale) -> str:
    places = [(x, y, half if math.isfinite(half) else 0.0) for x, y, half in curve.places if math.isfinite(y)]
    if not places:
        return ""
    colour = _TONES[curve.tone % len(_TONES)]
    upper = [f"{across(x)},{scale.at(y + half):.1f}" for x, y, half in places]
    lower = [f"{across(x)},{scale.at(y - half):.1f}" for x, y, half in reversed(places)]
    line = " ".join(f"{across(x)},{scale.at(y):.1f}" for x, y, _ in places)
    return (
        f'<polygon class="band" fill="{colour}" points="{" ".join(upper + lower)}"/>'
        f'<polyline class="line" stroke="{colour}" points="{line}"/>'
    )


def _legend(curves: Sequence[Curve], top: float) -> str:
    parts = []
    for n, curve in enumerate(curves):
        x, y = _LEFT + (n % _ABREAST) * 250, top + 10 + _LINE * (n // _ABREAST)
        colour = _TONES[curve.tone % len(_TONES)]
        parts.append(f'<rect fill="{colour}" x="{x}" y="{y - 6}" width="14" height="4" rx="2"/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{escape(curve.name)}</text>')
    return "".join(parts)


def _by(rows: Mapping[int, Mapping[str, Any]], across: str, unit: float) -> list[Curve]:
    """rows: by tone."""
    return [Curve(row["label"], _places(row["curve"], across, unit), tone) for tone, row in rows.items()]


def _places(curve: Sequence[Mapping[str, float]], across: str, unit: float) -> list[tuple[float, float, float]]:
    """Not of the untrained: its score is far off."""
    return [(point[across] / unit, point["mean"], point["half"]) for point in curve[1:]]


def _of_losses(runs: Sequence[Mapping[str, Any]], side: str) -> list[tuple[float, float, float]]:
    found = []
    for parts in zip(*(run["losses"][side] for run in runs), strict=False):
        mean, spread = (sum(part[key] for part in parts) / len(parts) for key in ("mean", "spread"))
        found.append((parts[0]["images"] / 1000, mean, spread))
    return found
