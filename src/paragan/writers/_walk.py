"""Frames as they come, as an animated WebP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from paragan.core.files import whole

_SIDE, _FRAME_MS = 720, 50


def save_walk(frames: Iterable[Image.Image], path: Path) -> None:
    """An endless film at 20 frames a second, no side longer than 720 px. Whole or not at all."""
    pictures = [_small(frame) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    save_film(pictures, path, _FRAME_MS, quality=85)


def save_film(pictures: Sequence[Image.Image], path: Path, duration_ms: int | list[int], quality: int) -> None:
    """These frames, all of one size, without end. duration_ms: of all, or of each. Whole or not at all."""
    more = {"save_all": True, "append_images": pictures[1:], "duration": duration_ms, "loop": 0}
    with whole(path) as file:
        pictures[0].save(file, "WEBP", quality=quality, method=2, **more)


def _small(frame: Image.Image) -> Image.Image:
    rgb = frame.convert("RGB")
    rgb.thumbnail((_SIDE, _SIDE))
    return rgb
