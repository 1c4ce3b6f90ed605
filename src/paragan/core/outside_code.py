"""Somebody else's code that fails: one line with the place in their file, not our traceback."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paragan.core.errors import ConfigError, ParaganError

_NOT_THEIRS = (str(Path(__file__).resolve().parent.parent), sysconfig.get_path("stdlib"), "<")


@contextmanager
def reraise_as_config_error(what: str) -> Iterator[None]:
    """Whatever fails inside becomes a `ConfigError`: what, where in their code, and why."""
    try:
        yield
    except (ParaganError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:300]
        raise ConfigError(f"{what} raised {type(error).__name__}: {reason}{_place(error)}") from error


def _place(error: Exception) -> str:
    """The last line of the traceback that is neither ours nor a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(_NOT_THEIRS) and "site-packages" not in f.filename]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
