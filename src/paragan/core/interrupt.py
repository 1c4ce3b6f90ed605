"""Stopping on request: Ctrl-C, or SIGTERM from a scheduler, asks; a second Ctrl-C does not wait.

A rank of several hears the same request from the terminal, from torchrun and from the launcher: to it a second signal
says nothing new, and whoever started it decides how long to wait.

Installed before torch is imported, since a scheduler may ask while that takes its seconds.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

ASKED = "stopping after this step; again to abort"
_ASKING = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupt:
    """`requested` turns true at the first SIGINT or SIGTERM; the loop looks at it between steps.

    Leaving the `with` block gives the signals back. patient: a second Ctrl-C only sets `aborted`. says: what is told at
    the first, in a line of stderr.
    """

    requested: bool = False
    aborted: bool = False
    by: int | None = None  # the number of the first signal

    def __init__(self, patient: bool = False, says: str = ASKED) -> None:
        self.patient, self.says = patient, says
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        """From now on Ctrl-C kills at once, even inside a call that never returns, so the terminal is mended here."""
        if not self.patient:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        elif self.requested and number == signal.SIGINT:
            self.aborted = True
        if not self.requested:
            self.requested, self.by = True, number
            fresh_line = _SHOW_CURSOR + b"\n" if os.isatty(2) else b""
            if self.says:
                os.write(2, fresh_line + f"{self.says}\n".encode())  # print may not be re-entered here


def install(patient: bool = False, says: str = ASKED) -> Interrupt:
    """Catch SIGINT and SIGTERM. Only the main thread of a process may; raises `ValueError` elsewhere."""
    interrupt = Interrupt(patient, says)
    for number in _ASKING:
        interrupt._before[number] = signal.signal(number, interrupt._ask)
    return interrupt
