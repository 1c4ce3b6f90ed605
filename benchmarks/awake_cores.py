"""Cores that never sleep, for timings of messages on a virtual machine.

A hypervisor takes the core of a virtual machine away as soon as it halts, and gives it back
milliseconds after a message has arrived. Linux can poll before a core halts (`haltpoll`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
_POLL_NS = 20_000_000


@contextmanager
def awake_cores() -> Iterator[str]:
    """Let idle cores poll for 20 ms inside the block. Yields what was set; needs root, and Linux as a guest."""
    if not (_POLL.exists() and os.access(_POLL, os.W_OK)):
        yield "cores that halt when idle"
        return
    before = _POLL.read_text()
    _POLL.write_text(str(_POLL_NS))
    try:
        yield f"idle cores poll for {_POLL_NS / 1e6:g} ms before they halt"
    finally:
        _POLL.write_text(before)


def stolen_s() -> float:
    """Seconds since the start that the hypervisor gave a core of this machine to another one."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(words[8]) / os.sysconf("SC_CLK_TCK")
