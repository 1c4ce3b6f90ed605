"""Films from frames: an animated WebP or GIF, or an MP4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from paragan.core.files import atomic_write
from paragan.storage.video import save_mp4

_SIDE, _FRAME_MS = 720, 50


def save_frames(frames: Iterable[Image.Image], path: Path) -> None:
    """A film at 20 frames a second, no side longer than 720 px. Whole or not at all."""
    pictures = [_shrink(frame) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    save_animation(pictures, path, [_FRAME_MS] * len(pictures), quality=85)


def save_animation(pictures: Sequence[Image.Image], path: Path, durations_ms: list[int], quality: int) -> None:
    """RGB frames, all of one size, as the ending of `path` says. WebP and GIF repeat without end. Whole or not at all.

    durations_ms: of each frame. quality: of a WebP, 0 to 100.
    """
    ending = path.suffix.lower()
    if ending == ".mp4":
        return save_mp4(pictures, path, durations_ms)
    more = {"save_all": True, "append_images": pictures[1:], "duration": durations_ms, "loop": 0}
    with atomic_write(path) as file:
        if ending == ".gif":
            pictures[0].save(file, "GIF", **more)
        else:
            pictures[0].save(file, "WEBP", quality=quality, method=2, **more)


def _shrink(frame: Image.Image) -> Image.Image:
    rgb = frame.convert("RGB")
    rgb.thumbnail((_SIDE, _SIDE))
    return rgb
