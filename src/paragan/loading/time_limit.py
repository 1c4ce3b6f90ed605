"""A limit on the time that code of a program takes in the process itself, where no thread or process waits for it."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from paragan.core.errors import DataError


@contextmanager
def time_limit(seconds: float, problem: str) -> Iterator[None]:
    """Raise `DataError` with `problem` in a block that takes longer.

    Code outside Python is interrupted once it returns. Without effect outside the main thread, where the system has
    no alarms (Windows), and if an alarm of the program is due before.
    """
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGALRM) if is_main and hasattr(signal, "SIGALRM") else None
    left, period = (0.0, 0.0) if handler is None else signal.getitimer(signal.ITIMER_REAL)
    if handler is None or 0 < left <= seconds:
        yield
        return

    def end(*_: object) -> None:
        raise DataError(problem)

    began = time.monotonic()
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again, if the code has caught the error
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # the alarm of the program goes on
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-6), period)
