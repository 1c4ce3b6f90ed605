"""Animations from frames: WebP, GIF or MP4 files. MP4 is encoded by ffmpeg in a temporary folder."""

import math
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from PIL import Image

from paragan.core.errors import DataError
from paragan.core.files import atomic_write, open_regular_file
from paragan.core.printable import to_printable
from paragan.storage.image_formats import ENCODER

_MAX_SIDE = 720
_FRAME_MS = 50
_TIMEOUT_S = 600
_PAD_TO_EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # most players require even sides
_MAX_MESSAGE_BYTES = 300  # from ffmpeg


def save_frames(frames: Iterable[Image.Image], path: Path) -> None:
    """Write an animation at 20 frames per second, at most 720 px wide and high; atomically."""
    images = [_shrink(frame) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    save_animation(images, path, [_FRAME_MS] * len(images), quality=85)


def save_animation(images: Sequence[Image.Image], path: Path, durations_ms: list[int], quality: int) -> None:
    """Write RGB frames of one size as WebP, GIF (both loop) or MP4, by suffix; atomically.

    durations_ms: duration of each frame. quality: of a WebP, 0 to 100. Raises `DataError` if ffmpeg
    fails or takes longer than ten minutes.
    """
    suffix = path.suffix.lower()
    if suffix == ".mp4":
        return _save_mp4(images, path, durations_ms)
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


def _save_mp4(images: Sequence[Image.Image], path: Path, durations_ms: Sequence[int]) -> None:
    unit_ms = math.gcd(*durations_ms)  # raw video has one frame rate: a longer frame is sent several times
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "video.mp4"
        size = "x".join(map(str, images[0].size))
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"1000/{unit_ms}", "-i", "pipe:0"]
        target = ["-vf", _PAD_TO_EVEN, "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(video)]
        repeats = [duration // unit_ms for duration in durations_ms]
        frames = zip(images, repeats, strict=True)
        _encode([ENCODER, "-loglevel", "error", "-nostdin", *source, *target], frames)
        with open_regular_file(video) as encoded, atomic_write(path) as file:
            shutil.copyfileobj(encoded, file)


def _encode(command: Sequence[str], frames: Iterable[tuple[Image.Image, int]]) -> None:
    """Run the encoder and write each frame to its standard input, as often as given."""
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=messages)
        timer = threading.Timer(_TIMEOUT_S, process.kill)
        timer.start()
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # the encoder ended early; see its exit code below
                for image, times in frames:
                    for _ in range(times):
                        process.stdin.write(image.tobytes())
            with suppress(BrokenPipeError):
                process.stdin.close()
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
        if code:
            messages.seek(0)
            words = messages.read(_MAX_MESSAGE_BYTES).decode("utf-8", "replace").split()
            reason = to_printable(" ".join(words) or f"exit code {code}")
            raise DataError(f"{ENCODER} could not write the video ({reason}); write .webp or .gif")
