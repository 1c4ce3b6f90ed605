"""Films and sheets in every format: frames and durations, and what is said where a format cannot be written."""

import shutil
import subprocess

import pytest
from PIL import Image

from paragan.core.errors import ConfigError, DataError
from paragan.storage import animation
from paragan.storage.animation import save_animation
from paragan.storage.image_formats import check_animation_path

COLOURS = [(200, 30, 40), (20, 180, 60), (30, 60, 220)]
DURATIONS = [120, 120, 600]
needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")


@pytest.fixture
def frames():
    return [Image.new("RGB", (33, 21), colour) for colour in COLOURS]  # odd sides


@pytest.mark.parametrize(("ending", "tolerance"), [("webp", 12), ("gif", 2), ("GIF", 2)])
def test_an_animation_holds_the_frames_as_long_as_given(tmp_path, frames, ending, tolerance):
    save_animation(frames, tmp_path / f"film.{ending}", DURATIONS, quality=80)
    with Image.open(tmp_path / f"film.{ending}") as film:
        assert (film.n_frames, film.info["loop"], film.size) == (3, 0, (33, 21))
        for number, (colour, duration) in enumerate(zip(COLOURS, DURATIONS, strict=True)):
            film.seek(number)
            film.load()
            assert film.info["duration"] == duration
            shown = film.convert("RGB").getpixel((16, 10))
            assert max(abs(a - b) for a, b in zip(shown, colour, strict=True)) <= tolerance


@needs_ffmpeg
def test_an_mp4_holds_the_frames_as_long_as_given(tmp_path, frames):
    save_animation(frames, tmp_path / "film.mp4", DURATIONS, quality=80)
    command = ["ffmpeg", "-loglevel", "error", "-i", tmp_path / "film.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    frame_bytes = 34 * 22 * 3  # even sides
    shown = [
        pixels[at + frame_bytes // 2 + 51 : at + frame_bytes // 2 + 54] for at in range(0, len(pixels), frame_bytes)
    ]
    nearest = [
        min(range(3), key=lambda n: sum(abs(a - b) for a, b in zip(one, COLOURS[n], strict=True))) for one in shown
    ]
    assert nearest == [0, 1, 2, 2, 2, 2, 2]
    assert not list(tmp_path.glob(".*"))


def test_an_encoder_that_fails_is_one_line_and_no_file(tmp_path, frames, monkeypatch):
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho no encoder >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(animation, "ENCODER", str(program))
    with pytest.raises(DataError, match=r"could not write the video \(no encoder\); write \.webp or \.gif"):
        save_animation(frames * 400, tmp_path / "film.mp4", DURATIONS * 400, quality=80)
    assert not (tmp_path / "film.mp4").exists()


def test_mp4_without_encoder_names_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = "--out: writing .mp4 needs the program ffmpeg, which is not on PATH; install it, or write .webp or .gif"
    with pytest.raises(ConfigError) as caught:
        check_animation_path("--out", tmp_path / "a.mp4")
    assert str(caught.value) == expected
