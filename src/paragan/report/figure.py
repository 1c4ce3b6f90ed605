"""Figures drawn by matplotlib (extra `plot`), as the content of an SVG or PNG file."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from paragan.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#1f6fb2", "#c8551b", "#1d7a4c", "#8a4fae", "#6b7078", "#a8871b", "#b23a6a", "#2b8f99")
_DOTS_PER_INCH = 144


def require_matplotlib(option: str) -> None:
    """Raise `ConfigError` if matplotlib is not installed. option: that needs it."""
    if find_spec("matplotlib") is None:
        raise ConfigError(f"{option}: matplotlib is not installed; run {sys.executable} -m pip install 'paragan[plot]'")


def render_figure(
    title: str,
    size: tuple[float, float],
    draw: Callable[[Figure], None],
    file_format: Literal["svg", "png"] = "svg",
) -> bytes:
    """Return a figure of `size` inches, on white; equal values give equal bytes.

    draw: fills the figure. Texts of an SVG are text, not outlines.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    absent = {"svg": ("Date", "Creator"), "png": ("Software",)}[file_format]
    buffer = io.BytesIO()
    with style.context(["default", {"svg.fonttype": "none", "svg.hashsalt": title}]):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        about = {"Title": title, **dict.fromkeys(absent)}
        figure.savefig(buffer, format=file_format, dpi=_DOTS_PER_INCH, metadata=about)
    if file_format == "png":
        return buffer.getvalue()
    lines = [line.rstrip() for line in buffer.getvalue().decode().splitlines()]
    return ("\n".join(lines) + "\n").encode()
