"""One-line errors for failures of outside code, with the place in the user's file."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paragan.core.errors import ConfigError, ParaganError

_LIBRARY = (str(Path(__file__).resolve().parent.parent), sysconfig.get_path("stdlib"), "<")
_MAX_CHARACTERS = 300


@contextmanager
def reraise_as_config_error(action: str) -> Iterator[None]:
    """Turn failures inside, except paragan's and `MemoryError`, into a one-line `ConfigError`."""
    try:
        yield
    except (ParaganError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:_MAX_CHARACTERS]
        raise ConfigError(f"{action} raised {type(error).__name__}: {reason}{_location(error)}") from error


def _location(error: Exception) -> str:
    """Return the last line of the traceback that belongs neither to paragan nor to a library."""
    outside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_LIBRARY) and "site-packages" not in frame.filename
    ]
    return f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""
