"""MPI and its channels. Importing this file initialises MPI; the exit of the process finalises it.

One thread at a time may call MPI ("serialized"): a communicator calls it in its caller's thread.
"""

from __future__ import annotations

import atexit
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.extensions.grid.transports.peer_connection import MessageKind, PeerConnection, ReceiveBuffer
from paragan.extensions.grid.transports.waiting import Backoff, WorkerError, check_size, failed_error

try:
    import mpi4py
except ImportError:
    raise ConfigError(
        f"transport=mpi requires mpi4py; run {sys.executable} -m pip install mpi4py mpich, or use transport=gloo"
    ) from None

mpi4py.rc.thread_level = "serialized"
mpi4py.rc.finalize = False  # it would wait for every process without a limit; see `_finalize`

from mpi4py import MPI  # noqa: E402

_HEAD = 1  # tags
_DATA = 2
_MOST = 1 << 16  # messages in a list
PAUSE_S = (2e-5, 1e-2)  # uses less than 1 % of a core; MPI's waits would use all of it

open_communicators: set[object] = set()  # communicators that were not closed


@atexit.register
def _finalize() -> None:
    """Finalise MPI if all communicators are closed; otherwise mpiexec ends the other processes."""
    if not open_communicators and not MPI.Is_finalized():
        MPI.Finalize()


class PolledReceiveBuffer(ReceiveBuffer):
    """A receive buffer that fills only while MPI is called. progress: receives what has arrived."""

    def __init__(self, timeout_s: float, stopped: Callable[[], bool]) -> None:
        super().__init__(timeout_s, stopped)
        self.progress: Callable[[], None] = lambda: None

    def wait_until(self, missing: Callable[[], list[int]]) -> None:
        def now_missing() -> list[int]:
            self.progress()
            return missing()

        super().wait_until(now_missing)

    def _pause(self) -> Callable[[float], object]:
        return Backoff(*PAUSE_S)


class MpiChannel(PeerConnection):
    """A connection over MPI: heads of int64 (number, kind, lengths), each followed by its messages.

    Messages are sent without a copy. An announcement is a head alone, for messages that travel by a
    collective; it arrives as one tensor, of the lengths.
    """

    _ANNOUNCED = -1  # instead of a kind

    def __init__(self, peer: int, arrivals: ReceiveBuffer, comm: Any, most_bytes: int) -> None:
        super().__init__(peer, arrivals)
        self._comm = comm
        self._most_bytes = most_bytes
        self._going: deque[tuple[Any, Tensor]] = deque()  # requests with their tensors
        self._head: list[int] | None = None
        self._coming: list[tuple[Any, Tensor]] = []
        self._broken = False

    @property
    def is_idle(self) -> bool:
        """Whether all sends have completed."""
        return self._broken or not self._going

    def send_lengths(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Announce messages that travel by a collective."""
        with self._lock, self._recording_errors():
            self._send_head(number, self._ANNOUNCED, tensors)

    def progress(self) -> None:
        """Receive what has arrived, and release what has been sent."""
        if not self._broken:
            with self._recording_errors():
                self._progress()

    def give_up(self) -> None:
        """Cancel all receives."""
        for request, _ in self._coming:
            with self._recording_errors():
                request.Cancel()

    def _put(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        with self._recording_errors():
            self._send_head(number, kind, tensors)
            for tensor in tensors:
                sent = self._comm.Isend([tensor.numpy(), MPI.BYTE], self.peer, _DATA)
                self._going.append((sent, tensor))

    @contextmanager
    def _recording_errors(self) -> Iterator[None]:
        """Record an MPI error as the failure of this worker, for the calls that wait for it."""
        try:
            yield
        except (MPI.Exception, WorkerError) as error:
            self._broken = True
            found = error if isinstance(error, WorkerError) else failed_error(self.peer, error)
            self._arrivals.mark_failed(self.peer, found)

    def _send_head(self, number: int, kind: int, tensors: Iterable[Tensor]) -> None:
        head = torch.tensor([number, kind, *map(len, tensors)])
        self._going.append((self._comm.Isend([head.numpy(), MPI.INT64_T], self.peer, _HEAD), head))

    def _progress(self) -> None:
        while self._going and self._going[0][0].Test():
            self._going.popleft()
        while self._head is not None or self._poll_header():
            if not MPI.Request.Testall([request for request, _ in self._coming]):
                return
            assert self._head is not None
            (number, kind, *lengths) = self._head
            tensors = [tensor for _, tensor in self._coming]
            self._head = None
            self._coming = []
            if kind == self._ANNOUNCED:
                self._arrivals.put(self.peer, number, [torch.tensor(lengths, dtype=torch.int64)])
            else:
                self._dispatch(MessageKind(kind), number, tensors)

    def _poll_header(self) -> bool:
        """Return whether a header has arrived; receives of its messages are then started."""
        status = MPI.Status()
        found = self._comm.Improbe(self.peer, _HEAD, status)
        if found is None:
            return False
        size = check_size(status.Get_count(MPI.INT64_T), _MOST, self.peer)
        head = torch.empty(size, dtype=torch.int64)
        found.Recv([head.numpy(), MPI.INT64_T])
        self._head = head.tolist()
        lengths = [check_size(length, self._most_bytes, self.peer) for length in self._head[2:]]
        if self._head[1] != self._ANNOUNCED:
            for length in lengths:
                data = torch.empty(length, dtype=torch.uint8)
                request = self._comm.Irecv([data.numpy(), MPI.BYTE], self.peer, _DATA)
                self._coming.append((request, data))
        return True
