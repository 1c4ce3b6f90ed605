"""Memory that a process has freed but not returned to the system."""

import ctypes
from contextlib import suppress

import torch

_LARGE_SIDE = 512  # pixels
_MAPPED_FROM = 4 << 20  # of glibc by itself: up to 32 MiB
_M_MMAP_THRESHOLD = -3  # of mallopt(3)


def return_large_blocks(device: torch.device, shape: tuple[int, ...]) -> None:
    """Make freed tensors of large images return to the system, if they are on a CPU whose C library can (glibc).

    shape: (C, H, W); () for samples that are no images. By glibc's own rule such tensors become most of a process.
    Holds for the whole process, from now on.
    """
    if device.type == "cpu" and len(shape) == 3 and min(shape[1:]) >= _LARGE_SIDE:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)


def release_freed_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc).

    After large tensors of changing sizes it may hold twice the memory in use. Takes some
    milliseconds, and later allocations take longer.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
