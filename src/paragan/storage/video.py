"""MP4 films, encoded by the program ffmpeg in a temporary folder."""

from __future__ import annotations

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

_TIMEOUT_S = 600
_EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # most players take nothing else
_LONGEST = 300  # characters of ffmpeg's message


def save_mp4(pictures: Sequence[Image.Image], path: Path, durations_ms: Sequence[int]) -> None:
    """RGB frames of one size, each as long as given, once. Whole or not at all.

    Raises `DataError` where ffmpeg fails or takes longer than ten minutes.
    """
    unit_ms = math.gcd(*durations_ms)
    with tempfile.TemporaryDirectory() as folder:
        film = Path(folder) / "film.mp4"
        size = "x".join(map(str, pictures[0].size))
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"1000/{unit_ms}", "-i", "pipe:0"]
        target = ["-vf", _EVEN, "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(film)]
        frames = ((picture, duration // unit_ms) for picture, duration in zip(pictures, durations_ms, strict=True))
        _encode([ENCODER, "-loglevel", "error", "-nostdin", *source, *target], frames)
        with open_regular_file(film) as made, atomic_write(path) as file:
            shutil.copyfileobj(made, file)


def _encode(command: Sequence[str], frames: Iterable[tuple[Image.Image, int]]) -> None:
    """Write each frame, so many times, to standard input of the program."""
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=messages)
        timer = threading.Timer(_TIMEOUT_S, process.kill)
        timer.start()
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it ended early; its exit code says so
                for picture, times in frames:
                    for _ in range(times):
                        process.stdin.write(picture.tobytes())
            with suppress(BrokenPipeError):
                process.stdin.close()
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
        if code:
            messages.seek(0)
            text = " ".join(messages.read(_LONGEST).decode("utf-8", "replace").split()) or f"exit code {code}"
            raise DataError(f"{ENCODER} could not write the film ({to_printable(text)}); write .webp or .gif")
