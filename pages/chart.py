"""A curve as inline SVG in the colour of the text around it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from math import floor, isfinite, log10

Point = tuple[float, float]
_WIDE, _HIGH, _LEFT, _BOTTOM, _TOP = 640, 220, 56, 34, 12


def chart(lines: dict[str, Sequence[Point]], x_name: str, title: str, log: bool = False) -> str:
    """One path per name over a shared pair of axes. log: the vertical axis, where every value is above 0."""
    lines = {name: [p for p in points if isfinite(p[1]) and (p[1] > 0 or not log)] for name, points in lines.items()}
    every = [p for points in lines.values() for p in points]
    if not every:
        return ""
    up = (lambda y: log10(y)) if log else (lambda y: y)
    right, low, high = max(x for x, _ in every) or 1, min(up(y) for _, y in every), max(up(y) for _, y in every)
    span = high - low or 1

    def place(x: float, y: float) -> str:
        across = _LEFT + (_WIDE - _LEFT - 10) * x / right
        return f"{across:.1f},{_HIGH - _BOTTOM - (_HIGH - _BOTTOM - _TOP) * (up(y) - low) / span:.1f}"

    dashes = ("", ' stroke-dasharray="6 4"', ' stroke-dasharray="2 3"')
    paths = [
        f'<polyline points="{" ".join(place(*p) for p in points)}" fill="none" stroke="currentColor"'
        f' stroke-width="1.6"{dashes[number % 3]}/>'
        for number, points in enumerate(lines.values())
    ]
    legend = "; ".join(f"{('solid', 'dashed', 'dotted')[n % 3]}: {name}" for n, name in enumerate(lines))
    legend += "; logarithmic" if log else ""
    ends = (10**low, 10**high) if log else (low, high)
    texts = [
        (_LEFT - 6, _HIGH - _BOTTOM, "end", _short(ends[0])),
        (_LEFT - 6, _TOP + 8, "end", _short(ends[1])),
        (_LEFT, _HIGH - 18, "start", "0"),
        (_WIDE - 10, _HIGH - 18, "end", f"{_short(right)} {x_name}"),
        (_LEFT, _HIGH - 3, "start", legend),
    ]
    return _svg(title, [_axes(), *paths, *(_text(*text) for text in texts)])


def _svg(title: str, parts: list[str]) -> str:
    name = html.escape(title, quote=True)
    head = f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{name}" font-size="12"><title>{name}</title>'
    return "\n".join([head, *parts, "</svg>"])


def _axes() -> str:
    bottom = _HIGH - _BOTTOM
    return f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDE - 10}" fill="none" stroke="currentColor" opacity="0.4"/>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor">{html.escape(text)}</text>'


def _short(value: float) -> str:
    """Three digits: 0.00123, 1.23, 123, 12300."""
    if not value:
        return "0"
    return f"{value:.{max(0, 2 - floor(log10(abs(value))))}f}" if abs(value) < 100 else f"{value:.0f}"
