"""Frames as they come, as an animated WebP."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from PIL import Image

_SIDE, _FRAME_MS = 720, 50


def save_walk(frames: Iterable[Image.Image], path: Path) -> None:
    """An endless film at 20 frames a second, no side longer than 720 px. Whole or not at all."""
    pictures = [_small(frame) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        pictures[0].save(
            temporary,
            "WEBP",
            save_all=True,
            append_images=pictures[1:],
            duration=_FRAME_MS,
            loop=0,
            quality=85,
            method=2,
        )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _small(frame: Image.Image) -> Image.Image:
    rgb = frame.convert("RGB")
    rgb.thumbnail((_SIDE, _SIDE))
    return rgb
