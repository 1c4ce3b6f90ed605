"""Child processes that answer requests of their parent, in lines of JSON."""

import ctypes
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from queue import Queue
from threading import Thread
from typing import Any

from paragan.core.local_processes import LocalProcesses

_PIECE_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1  # of Linux


class AnsweringProcesses(LocalProcesses):
    """`LocalProcesses` that are started with `pipes`."""

    def request(
        self, message: Mapping[str, Any] | None, timeout_s: float, grace_s: float = math.inf
    ) -> list[dict[str, Any]]:
        """Send a message to all processes (None: only wait) and return the reply of each.

        The reply of a process that has ended, or sent none in time, is `{"error": reason}`; kill them all then, as a
        late reply would be taken for the next one. grace_s: how long the others may take once one has replied with an
        error. Message and reply are one line of JSON each.
        """
        if message is not None:
            for process in self.processes:
                assert process.stdin is not None
                with suppress(OSError):  # an ended process; its error is read below
                    process.stdin.write(json.dumps(message).encode() + b"\n")
                    process.stdin.flush()
        replies: dict[int, dict[str, Any]] = {}
        received = [b""] * len(self.processes)
        deadline = time.monotonic() + timeout_s
        while len(replies) < len(received) and (left_s := deadline - time.monotonic()) > 0:
            for number in self._readable(replies, left_s):
                piece = os.read(self._output(number), _PIECE_BYTES)
                received[number] += piece
                if not piece:
                    replies[number] = {"error": self.exit_reason(number)}
                elif received[number].endswith(b"\n"):
                    replies[number] = json.loads(received[number])
            if any("error" in reply for reply in replies.values()):
                deadline = min(deadline, time.monotonic() + grace_s)
        silent = {"error": f"timeout: no answer within {timeout_s:g} s"}
        return [replies.get(number, silent) for number in range(len(received))]

    def _output(self, number: int) -> int:
        output = self.processes[number].stdout
        assert output is not None
        return output.fileno()

    def _readable(self, replies: Mapping[int, object], wait_s: float) -> list[int]:
        """Return processes without a reply that write something, or end, within `wait_s`."""
        awaited = {self._output(n): n for n in range(len(self.processes)) if n not in replies}
        return [awaited[file] for file in select.select(list(awaited), [], [], wait_s)[0]]


def reserve_output() -> Callable[[Mapping[str, Any]], None]:
    """Return a function that sends this child's replies; other output moves to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lambda message: print(json.dumps(message), file=replies, flush=True)


def requests(parent: int) -> Iterator[dict[str, Any]]:
    """Yield the requests that this child receives; the process ends with its parent.

    parent: process id. On Linux the kernel ends a child, also a suspended one, with the thread that
    started it; elsewhere, the end of the pipe does.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    received: Queue[bytes] = Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            received.put(line)
        os._exit(0)

    Thread(target=read, daemon=True).start()
    while os.getppid() == parent:
        yield json.loads(received.get())


def source_environment() -> dict[str, str]:
    """Return the variables of a child with the same import path and one OpenMP thread."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
