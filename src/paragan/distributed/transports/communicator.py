"""The communicator of the training workers: the interface of all transports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from paragan.core.errors import RankError

_LOOK_S = 0.05  # at `stopped`
_HOST = torch.device("cpu")


class Communicator(Protocol):
    """The workers that train (LOCAL), seen from one of them. It belongs to one membership: when that changes, all drop
    it and make another.

    A message is a 1-d contiguous uint8 tensor on the host, of any length. Neither what was sent nor what came is
    written to afterwards: another worker may be reading it. Every wait ends with the time-out that it was made with,
    and within 0.2 s of its `stopped` becoming true, in a `WorkerError`; after one, only `drop` may follow. One thread
    at a time calls it. All workers make the same calls of `exchange`, `hand` and `gather`, in one order.

    rank, size: of this worker, among them. A coordinator that does not train takes part in `hand` and `gather` alone;
    its rank is `size`.
    """

    rank: int
    size: int

    def exchange(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        """To each of these workers its messages; by worker, those it sent to this one, in their order.

        Each of them names this one in the same call, be it with no messages. Returns when all have come.
        """

    def exchange_with_root(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        """As `exchange`, but the coordinator may take part, too."""

    def post(self, sends: Mapping[int, Sequence[Tensor]]) -> None:
        """Send without blocking. Of several posts that a worker has not taken yet, only the newest is sent."""

    def newest(self) -> dict[int, list[Tensor]]:
        """By worker, the newest messages it posted, where some came since the last call.

        `WorkerError` where a worker is unreachable: that is raised here and in `wait`, not in `post`.
        """

    def wait(self, peer: int, timeout_s: float | None = None) -> None:
        """Return when `newest` has something of that worker. timeout_s: None is the communicator's own."""

    def gather(self, mine: Sequence[Tensor]) -> list[list[Tensor]] | None:
        """The messages of all workers, at the coordinator (GLOBAL; without one, worker 0); None elsewhere.

        Returns when all have arrived: the caller may exit afterwards.
        """

    def abort(self) -> None:
        """Leave now, within a second, whatever the others do. Live workers receive the reason."""

    def close(self) -> None:
        """Leave together, after all sends and posts have arrived, except at workers that closed before.

        `WorkerError` where a worker is unreachable, or does not close in time.
        """


CommunicatorFactory = Callable[[Mapping[str, Any], Callable[[], bool]], Communicator]  # of an order, and `stopped`


class WorkerError(RankError):
    """Another worker is unreachable, silent or out of step. worker: its rank; the first one, where several are."""

    def __init__(self, message: str, worker: int) -> None:
        super().__init__(message)
        self.worker = worker


def wait_until(
    missing: Callable[[], list[int]], timeout_s: float, stopped: Callable[[], bool], rest: Callable[[float], object]
) -> None:
    """Return when no worker is missing. rest: waits for a change, at most that many seconds."""
    began = time.monotonic()
    while left := missing():
        waited_s = time.monotonic() - began
        if stopped():
            raise WorkerError(f"stopped after {waited_s:.1f} s of waiting for {format_workers(left)}", left[0])
        if waited_s >= timeout_s:
            raise WorkerError(f"{format_workers(left)} did not answer within {timeout_s:g} s", left[0])
        rest(min(_LOOK_S, timeout_s - waited_s))


class Backoff:
    """A polling delay: a sixteenth of the time waited so far, between first_s and most_s."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._began = time.monotonic()

    def __call__(self, at_most_s: float) -> None:
        waited_s = time.monotonic() - self._began
        time.sleep(min(max(self._first_s, waited_s / 16), self._most_s, at_most_s))


def format_workers(workers: Iterable[int]) -> str:
    """`worker 1`, `workers 1, 3`."""
    found = sorted(workers)
    return f"worker{'s' * (len(found) != 1)} {', '.join(map(str, found)) or '(none)'}"


def failed_error(worker: int, reason: object) -> WorkerError:
    """The error of a worker that ended, or whose connection broke."""
    return WorkerError(f"worker {worker} failed: {str(reason)[:200]}", worker)


def check_messages(tensors: Sequence[Tensor], most_bytes: int, device: torch.device = _HOST) -> None:
    """Raise `ValueError` for what is no message: the other end would read other bytes, or refuse them."""
    for tensor in tensors:
        is_there = tensor.device == device and tensor.is_contiguous()
        if tensor.dim() != 1 or tensor.dtype != torch.uint8 or not is_there:
            kind = f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
            expected = f"a contiguous torch.uint8 of one dimension on {device}"
            raise ValueError(f"found {kind}, expected {expected}")
        if len(tensor) > most_bytes:
            raise ValueError(f"found a message of {len(tensor)} bytes, expected at most {most_bytes}")


def never_stopped() -> bool:
    """The default of `stopped`: always False."""
    return False
