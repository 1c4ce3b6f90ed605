"""Extensions of paragan: whether one is there."""

from __future__ import annotations

from pathlib import Path

from paragan.core.errors import ConfigError

_FOLDER = Path(__file__).resolve().parent.parent / "extensions"


def has_extension(name: str) -> bool:
    """Return whether this installation has an extension."""
    return (_FOLDER / name).is_dir()


def check_extension(name: str, setting: str) -> None:
    """Raise `ConfigError` if an extension was removed. setting: that needs it, in the words of the user."""
    if not has_extension(name):
        raise ConfigError(f"{setting}: this installation of paragan was made without extensions/{name}; leave it out")
