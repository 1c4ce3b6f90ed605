"""Which files sheets and films can be written as: chosen by the ending of the file name, here alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from paragan.core.errors import ConfigError

SHEET_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}  # as Pillow calls them
ANIMATION_FORMATS = (".webp", ".gif", ".mp4")
ENCODER = "ffmpeg"


def check_sheet_path(option: str, path: Path) -> None:
    """`ConfigError` unless a sheet of images can be written as `path`. option: the word of the command."""
    if path.suffix.lower() not in SHEET_FORMATS:
        sheets, animations = _join_or(SHEET_FORMATS), _join_or(ANIMATION_FORMATS)
        raise ConfigError(f"{option}: cannot write {str(path)!r}; a sheet of images is {sheets}, a film {animations}")


def check_animation_path(option: str, path: Path) -> None:
    """`ConfigError` unless a film can be written as `path`, here."""
    ending = path.suffix.lower()
    if ending not in ANIMATION_FORMATS:
        raise ConfigError(f"{option}: cannot write {str(path)!r}; a film is {_join_or(ANIMATION_FORMATS)}")
    if ending == ".mp4" and shutil.which(ENCODER) is None:
        raise ConfigError(
            f"{option}: an .mp4 film needs the program {ENCODER}, which is not on PATH; "
            "install it, or write .webp or .gif"
        )


def _join_or(endings: Iterable[str]) -> str:
    *first, last = endings
    return f"{', '.join(first)} or {last}"
