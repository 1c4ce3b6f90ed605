"""Bars from 1 to the left (faster) or right (slower), on a logarithmic axis; a ring where the poster's number lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

Bar = tuple[str, float, float, float, float | None]  # name, median, low, high, the poster's
Place = Callable[[float], float]

_WIDTH, _LEFT, _RIGHT, _LINE, _HEAD = 820, 330, 60, 24, 58
_TICKS = (0.25, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0)
_STYLE = """
 text { font: 13px system-ui, sans-serif; fill: #1b1c1f; } .soft { fill: #6e7178; font-size: 12px; }
 .title { font-weight: 700; }
 .grid { stroke: #e2dfd8; } .one { stroke: #51545b; } .less { fill: #1f6fb2; } .more { fill: #c8551b; }
 .span { stroke: #1b1c1f; } .ring { fill: none; stroke: #1d7a4c; stroke-width: 2; } .paper { fill: #fbfaf7; }
 @media (prefers-color-scheme: dark) {
  text { fill: #eceae5; } .soft { fill: #8e9199; } .grid { stroke: #2d3138; } .one { stroke: #b1b3b9; }
  .less { fill: #6fb1ee; }
  .more { fill: #f2935c; } .span { stroke: #eceae5; } .ring { stroke: #5fce95; } .paper { fill: #14161a; }
 }
"""


def drawn(tables: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """An SVG of all tables, one under the other."""
    values = [v for _, bars in tables for _, _, low, high, poster in bars for v in (low, high, poster) if v]
    low, high = min([0.7, *values]) / 1.08, max([1.5, *values]) * 1.08

    def x(value: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(value / low) / math.log(high / low), 1)

    top, parts = 8, []
    for title, bars in tables:
        parts.append(_panel(title, bars, x, [t for t in _TICKS if low <= t <= high], top))
        top += _HEAD + _LINE * len(bars) + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" role="img">'
    what = "<title>Epoch time over the baseline's</title>"
    paper = '<rect class="paper" width="100%" height="100%"/>'
    return f"{head}{what}<style>{_STYLE}</style>{paper}{''.join(parts)}</svg>\n"


def _panel(title: str, bars: Sequence[Bar], x: Place, ticks: Sequence[float], top: float) -> str:
    bottom = top + _HEAD + _LINE * len(bars)
    parts = [
        f'<text class="title" x="12" y="{top + 16}">{escape(title)}</text>',
        f'<text class="soft" x="12" y="{top + 34}">epoch time / baseline; line: 95 %; ring: the poster</text>',
    ]
    for tick in ticks:
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<line class="{kind}" x1="{x(tick)}" x2="{x(tick)}" y1="{top + _HEAD - 8}" y2="{bottom}"/>')
        parts.append(f'<text class="soft" x="{x(tick)}" y="{top + _HEAD - 14}" text-anchor="middle">{tick:g}</text>')
    for number, bar in enumerate(bars):
        parts.append(_bar(bar, x, top + _HEAD + _LINE * number))
    return "".join(parts)


def _bar(bar: Bar, x: Place, top: float) -> str:
    name, median, low, high, poster = bar
    left, right = sorted((x(1.0), x(median)))
    middle, kind = top + 9, "less" if median < 1 else "more"
    ring = "" if poster is None else f'<circle class="ring" cx="{x(poster)}" cy="{middle}" r="5"/>'
    return (
        f'<text x="{_LEFT - 14}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{left}" y="{top + 2}" width="{max(1.0, right - left):.1f}" height="14" rx="2"/>'
        f'<line class="span" x1="{x(low)}" x2="{x(high)}" y1="{middle}" y2="{middle}"/>{ring}'
        f'<text class="soft" x="{max(right, x(high)) + 10}" y="{top + 13}">{median:.2f}</text>'
    )
