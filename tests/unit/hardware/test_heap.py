"""Memory that was freed goes back to the system."""

import ctypes
from pathlib import Path

import pytest
import torch

from paragan.hardware import heap

glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim") or not Path("/proc/self/statm").exists(),
    reason="needs glibc on Linux",
)


def resident() -> float:
    """MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@glibc
def test_what_was_freed_is_given_back():
    keep = []
    held = [torch.ones(20_000) for _ in range(1000)]  # 80 kB each: too small for pages of their own
    keep = held[-1:]
    before = resident()
    del held
    heap.release_freed_memory()
    assert before - resident() > 40 and keep[0].sum() == 20_000
