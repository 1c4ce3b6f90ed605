"""Pictures of fixed latents over a run: as frames inside a page of bounded size, and as a film."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.report.record import RecordEntry, single_line
from paragan.storage.animation import save_animation

_FRAMES, _BUDGET, _SIDE = 60, 900_000, 960  # at most so many, so many bytes, so many pixels a side
_FILM_FRAMES, _FILM_SIDE, _FRAME_MS, _REST_MS = 120, 720, 120, 1500
_MOST_PIXELS, _MOST_BYTES = 1 << 25, 64 << 20  # a picture takes up to 8 bytes a pixel: 256 MiB


@dataclass(frozen=True)
class Frame:
    """One picture as a data URI. width, height: in pixels, as embedded."""

    step: int
    kimg: float
    width: int
    height: int
    uri: str


@dataclass
class SampleFrames:
    """Keeps what it encoded, so that a page made again costs only its new pictures."""

    folder: Path
    _encoded: dict[str, Frame | None] = field(default_factory=dict)
    _stride: int = 1  # grows with the run

    def choose(self, samples: Sequence[RecordEntry]) -> list[Frame]:
        """Frames spaced over the run within the budget, in time, the first and the last always among them."""
        while len(wanted := every_nth(samples, self._stride)) > _FRAMES or not self._fits(wanted):
            self._stride *= 2
        self._encoded = {_sample_path(moment): self._frame(moment) for moment in wanted}
        return [frame for frame in self._encoded.values() if frame is not None]

    def _fits(self, wanted: Sequence[RecordEntry]) -> bool:
        sizes = [len(frame.uri) for moment in wanted if (frame := self._frame(moment)) is not None]
        return len(wanted) <= 2 or sum(sizes) <= _BUDGET * 4 // 3

    def _frame(self, moment: RecordEntry) -> Frame | None:
        name = _sample_path(moment)
        if name not in self._encoded:
            self._encoded[name] = _encode_frame(self.folder / name, moment)
        return self._encoded[name]


def every_nth(samples: Sequence[RecordEntry], stride: int) -> list[RecordEntry]:
    """Every stride-th and the last."""
    return [*samples[:-1:stride], *samples[-1:]]


def save_run_animation(folder: Path, path: Path) -> int:
    """Write the pictures of the run in `folder` as a film, .webp, .gif or .mp4; returns the number of frames.

    Raises `DataError` where there is no picture yet.
    """
    files = sorted((folder / "samples").glob("step-*.png"))
    stride = -(-len(files) // (_FILM_FRAMES - 1)) or 1
    read = (_read_image(file, _FILM_SIDE) for file in [*files[:-1:stride], *files[-1:]])
    pictures = [picture for picture in read if picture is not None]
    if not pictures:
        raise DataError(
            f"{folder}: found no samples/step-*.png, expected at least one; lower every.sample_kimg and train"
        )
    pictures = [picture for picture in pictures if picture.size == pictures[-1].size]
    durations = [_FRAME_MS] * (len(pictures) - 1) + [_REST_MS]
    save_animation(pictures, path, durations, quality=80)
    return len(pictures)


def _sample_path(moment: RecordEntry) -> str:
    """Within samples/, whatever the record claims."""
    return f"samples/{Path(single_line(moment.values.get('path'))).name}"


def _encode_frame(path: Path, moment: RecordEntry) -> Frame | None:
    picture = _read_image(path, _SIDE)
    if picture is None:
        return None
    data = io.BytesIO()
    picture.save(data, "WEBP", quality=75, method=2)
    uri = "data:image/webp;base64," + base64.b64encode(data.getvalue()).decode()
    return Frame(moment.step, moment.kimg, *picture.size, uri)


def _read_image(path: Path, side: int) -> Image.Image | None:
    """In RGB, no side longer than `side`; None for what is missing, broken or absurdly large."""
    try:
        with open_regular_file(path) as file, Image.open(file, formats=["PNG"]) as picture:
            if picture.width * picture.height > _MOST_PIXELS or os.fstat(file.fileno()).st_size > _MOST_BYTES:
                return None
            whole = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None
    whole.thumbnail((side, side))
    return whole
