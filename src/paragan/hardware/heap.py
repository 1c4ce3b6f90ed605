"""Memory that a process has freed but not returned to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def release_freed_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc).

    After large tensors of changing sizes it may hold twice the memory in use. Takes some
    milliseconds, and later allocations take longer.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
