"""Memory that a process has freed and keeps."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def release_freed_memory() -> None:
    """To the system, where the C library can (glibc): after large tensors of changing sizes it may hold as much again
    as is in use. Takes some milliseconds, and again for what is asked for anew.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
