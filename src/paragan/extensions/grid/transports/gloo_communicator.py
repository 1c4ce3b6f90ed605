"""Communicator of processes over gloo links: one link to each peer, and from all to the root.

No group contains all workers: a failed worker breaks only its links. A link has a `GlooSender` and
a receiving thread at either end, and between two workers a gloo group for each direction: gloo
waits for the receiver before it sends, and in one group its reply would wait for all that the
receiver sends itself, so that the two would take turns. A link that only joins a worker to the root
is one group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.errors import RankError
from paragan.distributed.links.gloo_link import GlooSender, connect_pair, incoming_messages
from paragan.distributed.links.link import Message
from paragan.extensions.grid.transports.peer_connection import (
    ConnectedCommunicator,
    MessageKind,
    PeerConnection,
    ReceiveBuffer,
)
from paragan.extensions.grid.transports.waiting import Backoff, WorkerError, failed_error, wait_until

_MAX_MESSAGES = 1 << 16  # messages in a list, and in the send queue, so that no sender blocks
_EMPTY = torch.empty(0, dtype=torch.uint8)
_FAREWELL_S = 0.4
_UNUSED_TAG = 1  # links use 0


class GlooCommunicator(ConnectedCommunicator):
    """`Communicator` over gloo; the constructor returns when all workers are present and connected.

    store: shared by all workers. name: unique to the membership. max_bytes: of a received message;
    a longer one is rejected before memory is allocated. timeout_s: of every wait. stopped: polled
    during every wait. coordinated: one more process, of rank `size`, does not train. host: as in
    `gloo_link.connect_pair`.
    """

    def __init__(
        self,
        store: dist.Store,
        name: str,
        rank: int,
        size: int,
        peers: Iterable[int],
        *,
        max_bytes: int,
        timeout_s: float = 300.0,
        stopped: Callable[[], bool] = lambda: False,
        coordinated: bool = False,
        host: str | None = None,
    ) -> None:
        arrivals = ReceiveBuffer(timeout_s, stopped)
        super().__init__(rank, size, peers, arrivals, size if coordinated else 0)
        self.max_bytes = max_bytes
        # a waiting call, even an abandoned one, blocks its connection to the store
        store = dist.PrefixStore(name, store.clone())  # type: ignore[attr-defined]
        _wait_for_all(store, rank, size + coordinated, timeout_s, stopped)

        groups = self._connect(store, timeout_s, stopped, host)
        self._connections: dict[int, _Link] = {
            peer: _Link(groups=of_peer, rank=rank, peer=peer, arrivals=arrivals, max_bytes=max_bytes)
            for peer, of_peer in groups.items()
        }

    def _connect(
        self, store: dist.Store, timeout_s: float, stopped: Callable[[], bool], host: str | None
    ) -> dict[int, tuple[Any, Any]]:
        """Return the groups with each worker of `links`, which a thread makes: making one cannot be stopped."""
        groups: dict[int, tuple[Any, Any]] = {}
        errors: list[Exception] = []

        def connect() -> None:
            try:
                for peer in self.links:  # in ascending order, in which no workers wait in a cycle
                    pair = partial(connect_pair, store, rank=int(self.rank > peer), timeout_s=timeout_s, host=host)
                    groups[peer] = _connect_both_ways(pair, self.rank, peer, peer in self.peers)
            except Exception as error:
                errors.append(error)

        def missing() -> list[int]:
            left = [peer for peer in self.links if peer not in groups][:1]
            if errors:
                raise WorkerError(f"no link to worker {left[0]}: {str(errors[0])[:200]}", left[0])
            return left

        thread = threading.Thread(target=connect, daemon=True, name="links")
        thread.start()
        wait_until(missing, timeout_s, stopped, thread.join)
        return groups

    def _leave(self, orderly: bool) -> None:
        connections = list(self._connections.values())
        threads = [threading.Thread(target=connection.close, daemon=True) for connection in connections]
        for thread in threads:
            thread.start()
        for patience_s in (self._arrivals.timeout_s if orderly else _FAREWELL_S, _FAREWELL_S):
            deadline = time.monotonic() + patience_s
            for connection, thread in zip(connections, threads, strict=True):
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    connection.abort()


def _connect_both_ways(connect: Callable[[str], Any], rank: int, peer: int, is_worker: bool) -> tuple[Any, Any]:
    """Return the groups to send in and to receive in; one and the same to the root."""
    name = f"{min(rank, peer)}/{max(rank, peer)}"  # the same at both
    first = connect(name)  # both ends make their groups in this order, else each would wait in another one
    if not is_worker:
        return first, first
    second = connect(f"{name}/down")
    return (first, second) if rank > peer else (second, first)


class _Link(PeerConnection):
    """A connection over a gloo link. groups: to send in, and to receive in.

    The first message of a list carries its number, kind and count, even if the list is empty.
    """

    def __init__(self, groups: tuple[Any, Any], rank: int, peer: int, arrivals: ReceiveBuffer, max_bytes: int) -> None:
        super().__init__(peer, arrivals)
        self._groups = groups
        self._other = int(rank < peer)
        self._max_bytes = max_bytes
        self._sender = GlooSender(groups[0], self._other, _MAX_MESSAGES, arrivals.timeout_s)
        self._receiving = threading.Thread(target=self._receive_all, daemon=True, name=f"from worker {peer}")
        self._receiving.start()

    def close(self) -> None:
        """Wait until no thread remains: both ends have left, or the link is broken.

        A thread that returns from gloo while Python exits crashes the process.
        """
        with suppress(RankError):
            self._sender.close()
        self._receiving.join(self._arrivals.timeout_s)

    def abort(self) -> None:
        """Break the link: gloo has no abort, but one time-out ends all waits of a group."""
        for group in dict.fromkeys(self._groups):
            with suppress(RuntimeError):
                group.recv([torch.empty(1)], self._other, _UNUSED_TAG).wait(timedelta(milliseconds=1))

    def _put(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        with suppress(RankError):  # the receiving thread gets the error as well, and reports it
            note = len(tensors) * len(MessageKind) + kind
            self._sender.send(Message(version=number, data=tensors[0] if tensors else _EMPTY, note=note))
            for tensor in tensors[1:]:
                self._sender.send(Message(version=number, data=tensor))

    def _receive_all(self) -> None:
        """Dispatch all lists until the link ends: a failure unless the other end left before."""
        reason: object = "it has closed the link"
        try:
            messages = incoming_messages(self._groups[1], self._other, self._max_bytes)
            for head in messages:
                num_messages, kind = divmod(head.note, len(MessageKind))
                if not 0 <= num_messages < _MAX_MESSAGES:
                    raise RankError(f"it sends a list of {num_messages} messages; the limit is {_MAX_MESSAGES - 1}")
                others = islice(messages, max(0, num_messages - 1))
                tensors = [head.data, *(message.data for message in others)]
                if len(tensors) >= num_messages:
                    self._dispatch(MessageKind(kind), head.version, tensors[:num_messages])
        except Exception as error:
            reason = error
        self._arrivals.mark_failed(self.peer, failed_error(self.peer, reason))


def _wait_for_all(store: dist.Store, rank: int, size: int, timeout_s: float, stopped: Callable[[], bool]) -> None:
    awaited = list(range(size))

    def missing() -> list[int]:
        while awaited and store.check([f"here/{awaited[0]}"]):
            del awaited[0]
        return awaited[:1]

    try:
        store.set(f"here/{rank}", "")
        wait_until(missing, timeout_s, stopped, Backoff(0.001, 0.05))
    except RuntimeError as error:
        raise RankError(f"the store of the workers does not answer: {str(error)[:200]}") from error
