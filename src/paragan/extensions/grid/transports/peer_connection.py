"""Connections of a worker over gloo: one to each peer, whose messages a thread puts into a buffer as they arrive."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import RankError
from paragan.distributed.links.gloo_link import GlooSender, incoming_messages
from paragan.distributed.links.link import Message
from paragan.extensions.grid.transports.communicator import (
    WorkerError,
    failed_error,
    out_of_step_error,
    wait_until,
)

_MAX_LISTS = 2  # that one worker can send ahead: its next call needs an answer to the last
_MAX_MESSAGES = 1 << 16  # messages in a list, and in the send queue, so that no sender blocks
_EMPTY = torch.empty(0, dtype=torch.uint8)
_UNUSED_TAG = 1  # links use 0
_LEAVE = 0  # instead of the number of a call: the sender leaves
NO_FAILURE = -1  # instead of the rank of an unreachable worker
CLOSED = -2


class ReceiveBuffer:
    """Messages of the other workers until this one takes them.

    The number of a call counts from 1 for `exchange`, from -1 downwards for `gather`.
    """

    def __init__(self, timeout_s: float, stopped: Callable[[], bool]) -> None:
        self.timeout_s = timeout_s
        self._stopped = stopped
        self._changed = threading.Condition()
        self._lists: dict[int, deque[tuple[int, list[Tensor]]]] = {}  # by worker: number of the call, its messages
        self._failures: dict[int, WorkerError] = {}
        self._closed: set[int] = set()
        self._ended = False

    def put(self, peer: int, number: int, tensors: list[Tensor]) -> None:
        """Add the messages of a worker's call with this number."""
        with self._changed:
            waiting = self._lists.setdefault(peer, deque())
            if self._ended:
                return
            if len(waiting) >= _MAX_LISTS:  # it makes calls that this worker does not make: refused before memory fills
                self._failures.setdefault(peer, out_of_step_error(peer, number, waiting[0][0]))
            else:
                waiting.append((number, tensors))
            self._changed.notify_all()

    def mark_left(self, peer: int, failed: int) -> None:
        """Record that a worker leaves.

        failed: the worker that it could not reach, NO_FAILURE, or CLOSED (an error only if more is expected).
        """
        if failed >= 0:
            error = WorkerError(f"worker {peer} has left because worker {failed} failed", failed)
            return self.mark_failed(peer, error)
        with self._changed:
            if failed == CLOSED:
                self._closed.add(peer)
            self.mark_failed(peer, WorkerError(f"worker {peer} has left", peer))

    def mark_failed(self, peer: int, error: WorkerError) -> None:
        """Record why nothing more comes from a worker. The first reason counts."""
        with self._changed:
            self._failures.setdefault(peer, error)
            self._changed.notify_all()

    def take(self, peers: Iterable[int], number: int) -> dict[int, list[Tensor]]:
        """Return each worker's messages of this call; `WorkerError` if one is at another call."""
        peers = list(peers)
        with self._changed:
            self._wait_until(lambda: [peer for peer in peers if not self._lists.get(peer)])
            for peer in peers:
                peer_number, _ = self._lists[peer][0]
                if peer_number != number:
                    raise out_of_step_error(peer, peer_number, number)
            return {peer: self._lists[peer].popleft()[1] for peer in peers}

    def await_closed(self, peers: Sequence[int]) -> None:
        """Wait until these workers have left in an orderly way."""
        self._wait_until(lambda: [peer for peer in peers if peer not in self._closed])

    def discard(self) -> None:
        """Drop all messages, including later ones."""
        with self._changed:
            self._ended = True
            self._lists.clear()

    def _wait_until(self, missing: Callable[[], list[int]]) -> None:
        """Wait until no worker is missing. Raises `WorkerError` at once if one has failed."""

        def missing_and_alive() -> list[int]:
            peers = missing()
            for peer in peers:
                if peer in self._failures:
                    raise self._failures[peer]
            return peers

        with self._changed:
            wait_until(missing_and_alive, self.timeout_s, self._stopped, self._changed.wait)


class PeerConnection:
    """A connection to one worker, in both directions. groups: to send in, and to receive in.

    A list of messages begins with one that carries the number of the call and the count of the
    list, even if that is 0. A worker that leaves sends `_LEAVE` as the number, with its reason.
    """

    def __init__(self, groups: tuple[Any, Any], rank: int, peer: int, arrivals: ReceiveBuffer, max_bytes: int) -> None:
        self.peer = peer
        self._groups = groups
        self._other = int(rank < peer)
        self._arrivals = arrivals
        self._max_bytes = max_bytes
        self._sender = GlooSender(groups[0], self._other, _MAX_MESSAGES, arrivals.timeout_s)
        self._receiving = threading.Thread(target=self._receive_all, daemon=True, name=f"from worker {peer}")
        self._receiving.start()

    def send(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send the messages of a call, in order, without blocking; failures are raised by waits."""
        with suppress(RankError):  # the receiving thread gets the error as well, and reports it
            head = tensors[0] if tensors else _EMPTY
            self._sender.send(Message(version=number, data=head, note=len(tensors)))
            for tensor in tensors[1:]:
                self._sender.send(Message(version=number, data=tensor))

    def send_leave(self, reason: int) -> None:
        """Announce that this worker leaves. reason: as `failed` of `ReceiveBuffer.mark_left`."""
        with suppress(RankError):
            self._sender.send(Message(version=_LEAVE, data=_EMPTY, note=reason))

    def close(self) -> None:
        """Wait until no thread remains: both ends have left, or the link is broken.

        A thread that returns from gloo while Python exits crashes the process.
        """
        with suppress(RankError):
            self._sender.close()
        self._receiving.join(self._arrivals.timeout_s)

    def abort(self) -> None:
        """Break the link: gloo has no abort, but one time-out ends all waits of a group."""
        for group in dict.fromkeys(self._groups):  # each once: both may be one group
            with suppress(RuntimeError):
                group.recv([torch.empty(1)], self._other, _UNUSED_TAG).wait(timedelta(milliseconds=1))

    def _receive_all(self) -> None:
        """Put all lists into the buffer until the link ends: a failure unless the other end left before."""
        reason: object = "it has closed the link"
        try:
            messages = incoming_messages(self._groups[1], self._other, self._max_bytes)
            for head in messages:
                if head.version == _LEAVE:
                    self._arrivals.mark_left(self.peer, head.note)
                    continue
                if not 0 <= head.note < _MAX_MESSAGES:
                    raise RankError(f"it sends a list of {head.note} messages; the limit is {_MAX_MESSAGES - 1}")
                following = islice(messages, max(0, head.note - 1))
                tensors = [head.data, *(message.data for message in following)]
                if len(tensors) >= head.note:  # else the link has ended
                    # an empty list has a head, too, whose data is not one of its messages
                    self._arrivals.put(self.peer, head.version, tensors[: head.note])
        except Exception as error:
            reason = error
        self._arrivals.mark_failed(self.peer, failed_error(self.peer, reason))
