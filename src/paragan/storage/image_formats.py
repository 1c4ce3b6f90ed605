"""File formats of image sheets and animations, by file suffix."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from paragan.core.errors import ConfigError

SHEET_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}  # Pillow's name by suffix
ANIMATION_FORMATS = (".webp", ".gif", ".mp4")
ENCODER = "ffmpeg"


def check_sheet_path(option: str, path: Path) -> None:
    """Raise `ConfigError` unless `path` has the suffix of a sheet. option: CLI option to name."""
    if path.suffix.lower() not in SHEET_FORMATS:
        sheets = f"a sheet of images is {_join_or(SHEET_FORMATS)}"
        raise ConfigError(f"{option}: cannot write {str(path)!r}; {sheets}, an animation {_join_or(ANIMATION_FORMATS)}")


def check_animation_path(option: str, path: Path) -> None:
    """Raise `ConfigError` unless an animation can be written to `path` on this machine."""
    suffix = path.suffix.lower()
    if suffix not in ANIMATION_FORMATS:
        raise ConfigError(f"{option}: cannot write {str(path)!r}; an animation is {_join_or(ANIMATION_FORMATS)}")
    if suffix == ".mp4" and shutil.which(ENCODER) is None:
        raise ConfigError(
            f"{option}: writing .mp4 needs the program {ENCODER}, which is not on PATH; "
            "install it, or write .webp or .gif"
        )


def _join_or(suffixes: Iterable[str]) -> str:
    *first, last = suffixes
    return f"{', '.join(first)} or {last}"
