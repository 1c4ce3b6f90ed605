"""Which files sheets and films can be written as: chosen by the ending of the file name, here alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from paragan.core.errors import ConfigError

SHEETS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}  # as Pillow calls them
FILMS = (".webp", ".gif", ".mp4")
ENCODER = "ffmpeg"


def check_sheet(option: str, path: Path) -> None:
    """`ConfigError` unless a sheet of images can be written as `path`. option: the word of the command."""
    if path.suffix.lower() not in SHEETS:
        raise ConfigError(
            f"{option}: cannot write {str(path)!r}; a sheet of images is {_either(SHEETS)}, a film {_either(FILMS)}"
        )


def check_film(option: str, path: Path) -> None:
    """`ConfigError` unless a film can be written as `path`, here."""
    ending = path.suffix.lower()
    if ending not in FILMS:
        raise ConfigError(f"{option}: cannot write {str(path)!r}; a film is {_either(FILMS)}")
    if ending == ".mp4" and shutil.which(ENCODER) is None:
        raise ConfigError(
            f"{option}: an .mp4 film needs the program {ENCODER}, which is not on PATH; "
            "install it, or write .webp or .gif"
        )


def _either(endings: Iterable[str]) -> str:
    *first, last = endings
    return f"{', '.join(first)} or {last}"
