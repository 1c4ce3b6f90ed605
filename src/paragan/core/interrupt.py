"""Graceful stop on Ctrl-C or a signal of a scheduler or terminal.

A second Ctrl-C aborts. SIGTERM, SIGHUP and SIGUSR1 (which Slurm's `--signal` sends before a job's time is up) request
the same as Ctrl-C. Signals that the parent process ignores stay ignored: SIGHUP under `nohup`, SIGINT of a background
job of a script. SIGTERM always works. SIGQUIT has its default: the process ends at once.

A rank of several receives the same request from the terminal, torchrun and the launcher: there a
second signal changes nothing, and the process that started it decides how long to wait.

The handlers are installed before torch is imported, which takes seconds.
"""

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

from paragan.core.errors import StoppedError

STOP_MESSAGE = "stopping after this step; press Ctrl-C again to abort"
_MAY_BE_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_SHOW_CURSOR = b"\x1b[?25h"


class StopRequested(Exception):
    """Exception that leaves long work unfinished for a stop; a resumed run repeats it."""


class Interrupt:
    """State of stop requests: `requested` is true from the first signal; checked between steps.

    Leaving the `with` block restores the former handlers. patient: a second Ctrl-C only sets
    `aborted`. message: printed to stderr at the first signal. abort: handler of a second Ctrl-C.
    """

    requested: bool = False
    aborted: bool = False
    signal_number: int | None = None  # first signal

    def __init__(self, patient: bool = False, message: str = STOP_MESSAGE, abort: Any = signal.SIG_DFL) -> None:
        self.patient = patient
        self.message = message
        self.abort = abort
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Record the request, and let the next Ctrl-C abort.

        By default that ends the process at once, so the terminal's cursor is restored here.
        """
        # A Ctrl-C that the parent process ignores was not caught, and stays ignored.
        if not self.patient and signal.SIGINT in self._before:
            signal.signal(signal.SIGINT, self.abort)
        elif self.requested and number == signal.SIGINT:
            self.aborted = True
        if not self.requested:
            self.requested = True
            self.signal_number = number
            _replace_closed_terminal()
            fresh_line = _SHOW_CURSOR + b"\n" if os.isatty(2) else b""
            if self.message:
                with suppress(OSError):  # a full disk, or no reader: still a request
                    # `print` is not reentrant, so it is no option in a handler.
                    os.write(2, fresh_line + f"{self.message}\n".encode())


def install(patient: bool = False, message: str = STOP_MESSAGE, abort: Any = signal.SIG_DFL) -> Interrupt:
    """Catch the signals that request a stop; `ValueError` outside the main thread."""
    interrupt = Interrupt(patient, message, abort)
    for number in (signal.SIGTERM, *_MAY_BE_IGNORED):
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            interrupt._before[number] = signal.signal(number, interrupt._handle)
    return interrupt


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Raise `StoppedError` at a signal that an `Interrupt` handles: data may take hours to open, before any step."""
    numbers = [number for number in (signal.SIGTERM, *_MAY_BE_IGNORED) if _is_of_interrupt(signal.getsignal(number))]
    before = {number: signal.signal(number, _stop_at_once) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_of_interrupt(handler: object) -> bool:
    is_main = threading.current_thread() is threading.main_thread()  # alone may set handlers
    return is_main and isinstance(getattr(handler, "__self__", None), Interrupt)


def _stop_at_once(number: int, frame: FrameType | None) -> None:
    raise StoppedError("stopped while the data were opened, before the first step: there is nothing to save")


def _replace_closed_terminal() -> None:
    """Redirect output of a closed terminal to nothing: a failed print must not end a saving run."""
    for descriptor in (1, 2):
        with suppress(OSError):
            # the device of a closed terminal remains a character device, and is no terminal any more
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
