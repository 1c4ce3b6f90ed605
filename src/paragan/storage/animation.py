"""Animations from frames: WebP, GIF or MP4 files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from paragan.core.files import atomic_write
from paragan.storage.video import save_mp4

_MAX_SIDE = 720
_FRAME_MS = 50


def save_frames(frames: Iterable[Image.Image], path: Path) -> None:
    """Write an animation at 20 frames per second, at most 720 px wide and high; atomically."""
    images = [_shrink(frame) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    save_animation(images, path, [_FRAME_MS] * len(images), quality=85)


def save_animation(images: Sequence[Image.Image], path: Path, durations_ms: list[int], quality: int) -> None:
    """Write RGB frames of one size as WebP, GIF (both loop) or MP4, by suffix; atomically.

    durations_ms: duration of each frame. quality: of a WebP, 0 to 100.
    """
    suffix = path.suffix.lower()
    if suffix == ".mp4":
        return save_mp4(images, path, durations_ms)
    options = {"save_all": True, "append_images": images[1:], "duration": durations_ms, "loop": 0}
    with atomic_write(path) as file:
        if suffix == ".gif":
            images[0].save(file, "GIF", **options)
        else:
            images[0].save(file, "WEBP", quality=quality, method=2, **options)


def _shrink(frame: Image.Image) -> Image.Image:
    rgb = frame.convert("RGB")
    rgb.thumbnail((_MAX_SIDE, _MAX_SIDE))
    return rgb
