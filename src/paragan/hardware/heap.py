"""Memory that a process has freed but not returned to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import torch

_LARGE_SIDE = 512  # pixels
_MAPPED_FROM = 4 << 20  # of glibc by itself: up to 32 MiB
_M_MMAP_THRESHOLD = -3  # of mallopt(3)


def mapped_from(device: torch.device, shape: tuple[int, ...]) -> int | None:
    """Return the bytes from which on blocks return to the system when freed; None: by glibc's rule.

    shape: (C, H, W). Freed tensors of large images are most of a process by glibc's rule.
    """
    is_large = device.type == "cpu" and len(shape) == 3 and min(shape[1:]) >= _LARGE_SIDE
    return _MAPPED_FROM if is_large else None


def map_blocks(size: int | None) -> None:
    """Make blocks of at least `size` bytes return to the system when freed, if the C library can.

    For the whole process, from now on. None: nothing happens.
    """
    if size is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, size)


def release_freed_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc).

    After large tensors of changing sizes it may hold twice the memory in use. Takes some
    milliseconds, and later allocations take longer.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
