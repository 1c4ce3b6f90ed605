"""What this process was given: CPU cores and environment variables. Imports no torch."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def num_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_memory_bytes() -> int:
    """Return the memory of this host, or of the container that this process is in."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = ("memory.max", "memory/memory.limit_in_bytes")  # of either version of control groups
    limits = [Path("/sys/fs/cgroup", name) for name in names]
    texts = [path.read_text().strip() for path in limits if path.is_file()]
    return min([physical, *(int(text) for text in texts if text.isdecimal())])


@contextmanager
def temporary_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block; children that start there inherit them."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
            if name in before:
                os.environ[name] = before[name]
