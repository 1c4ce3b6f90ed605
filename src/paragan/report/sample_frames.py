"""Sample sheets of a run as frames: of its report, of bounded size, or of an animation."""

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from PIL import Image

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.report.record_values import RecordEntry, single_line

_Item = TypeVar("_Item")
_MAX_FRAMES = 60  # in the report
MAX_FRAME_BYTES = 900_000  # of all frames
MAX_FRAME_SIDE = 960
_MAX_ANIMATION_FRAMES = 120
_MAX_ANIMATION_SIDE = 720
_FRAME_MS = 120
_LAST_FRAME_MS = 1500
_MAX_PIXELS = 1 << 25  # an image takes up to 8 bytes per pixel: 256 MiB
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Sample sheet as a data URI. width, height: in pixels, as embedded."""

    step: int
    kimg: float
    seconds: float
    width: int
    height: int
    uri: str


@dataclass(kw_only=True)
class SampleFrames:
    """Frames of the report; encoded frames are cached, so only new samples are encoded.

    max_bytes: of all frames. max_side: of a frame, pixels.
    """

    folder: Path
    max_bytes: int = MAX_FRAME_BYTES
    max_side: int = MAX_FRAME_SIDE
    _encoded: dict[str, Frame | None] = field(default_factory=dict)
    _stride: int = 1  # grows with the run

    def choose(self, samples: Sequence[RecordEntry]) -> list[Frame]:
        """Return frames spaced over the run within the size limit, with the first and the last."""
        chosen = every_nth(samples, self._stride)
        while len(chosen) > _MAX_FRAMES or not self._fits(chosen):
            self._stride *= 2
            chosen = every_nth(samples, self._stride)
        self._encoded = {_sample_path(entry): self._frame(entry) for entry in chosen}
        return [frame for frame in self._encoded.values() if frame is not None]

    def _fits(self, chosen: Sequence[RecordEntry]) -> bool:
        sizes = [len(frame.uri) for entry in chosen if (frame := self._frame(entry)) is not None]
        return len(chosen) <= 2 or sum(sizes) <= self.max_bytes * 4 // 3  # base64

    def _frame(self, entry: RecordEntry) -> Frame | None:
        name = _sample_path(entry)
        if name not in self._encoded:
            self._encoded[name] = _encode_frame(self.folder / name, entry, self.max_side)
        return self._encoded[name]


def track_data(frames: Sequence[Frame]) -> list[dict[str, object]]:
    """Return the frames of a run as report.js takes them: the track of one run, along which its slider moves."""
    return [{"step": f.step, "kimg": f.kimg, "seconds": round(f.seconds, 2), "src": f.uri} for f in frames]


def every_nth(items: Sequence[_Item], stride: int) -> list[_Item]:
    """Return every stride-th item and the last."""
    return [*items[:-1:stride], *items[-1:]]


def save_run_animation(folder: Path, path: Path) -> None:
    """Write the samples of a run as .webp, .gif or .mp4.

    Raises `DataError` if the run has no samples yet.
    """
    from paragan.storage.animation import save_animation  # training needs none

    files = sorted((folder / "samples").glob("step-*.png"))
    stride = -(-len(files) // (_MAX_ANIMATION_FRAMES - 1)) or 1  # - 1: `every_nth` adds the last
    images = (_read_image(file, _MAX_ANIMATION_SIDE) for file in every_nth(files, stride))
    frames = [image for image in images if image is not None]
    if not frames:
        raise DataError(f"{folder}: the run has no samples/step-*.png; train with a lower every.sample_kimg")
    frames = [frame for frame in frames if frame.size == frames[-1].size]
    durations = [_FRAME_MS] * (len(frames) - 1) + [_LAST_FRAME_MS]
    save_animation(frames, path, durations, quality=80)


def _sample_path(entry: RecordEntry) -> str:
    """Return the path of the sample, always within samples/ because the record is untrusted."""
    return f"samples/{Path(single_line(entry.values.get('path'))).name}"


def _encode_frame(path: Path, entry: RecordEntry, max_side: int) -> Frame | None:
    image = _read_image(path, max_side)
    if image is None:
        return None
    data = io.BytesIO()
    image.save(data, "WEBP", quality=75, method=2)
    uri = "data:image/webp;base64," + base64.b64encode(data.getvalue()).decode()
    return Frame(
        step=entry.step, kimg=entry.kimg, seconds=entry.seconds, width=image.width, height=image.height, uri=uri
    )


def _read_image(path: Path, side: int) -> Image.Image | None:
    """Read a PNG as RGB of at most `side` px; None if it is missing, damaged or too large."""
    try:
        with open_regular_file(path) as file, Image.open(file, formats=["PNG"]) as image:
            num_bytes = os.fstat(file.fileno()).st_size
            if image.width * image.height > _MAX_PIXELS or num_bytes > _MAX_FILE_BYTES:
                return None
            rgb = image.convert("RGB")  # decodes the file
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None
    rgb.thumbnail((side, side))
    return rgb
