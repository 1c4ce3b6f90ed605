"""A link between two processes: a gloo group of the two, and a waiting thread at either end.

gloo's point-to-point works cannot be polled, so threads wait for them. An idle end sends keep-alive
messages several times within the time-out: an end that is silent for all of it is unreachable.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.errors import RankError
from paragan.distributed.links.link import Message, timeout_error

_ALIVE = -1  # markers instead of a number of bytes
_END = -2
_BEATS = 4  # keep-alive messages within the time-out
_HEAD_BYTES = 24  # of version, size and note, in front of every message


def connect_pair(store: dist.Store | None, name: str, rank: int, timeout_s: float, host: str | None = None) -> Any:
    """Return the process group of a link's two ends, ranks 0 and 1, when both have connected.

    host: the local address to listen on; None: as GLOO_SOCKET_IFNAME says, or the host's name.
    """
    assert store is not None, "ranks of a run have a store"
    pair_store = dist.PrefixStore(name, store)
    if host is None:
        return dist.ProcessGroupGloo(pair_store, rank, 2, timedelta(seconds=timeout_s))
    # torch chooses the interface by an environment variable, one for all groups of a process
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]  # type: ignore[attr-defined]
    options._timeout = timedelta(seconds=timeout_s)
    return dist.ProcessGroupGloo(pair_store, rank, 2, options)


class GlooSender:
    """`SendEnd` over gloo. peer: the other rank of the group. timeout_s: at most the group's.

    capacity: messages that may wait to be sent. count_bytes: called with the size of every message, without keep-alive
    messages.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        peer: int,
        capacity: int = 2,
        timeout_s: float = 300.0,
        count_bytes: Callable[[int], None] = lambda num_bytes: None,
    ) -> None:
        self.group = group
        self.peer = peer
        self.timeout_s = timeout_s
        self._count_bytes = count_bytes
        # the thread holds one more message
        self._waiting: queue.Queue[Message | None] = queue.Queue(max(1, capacity - 1))
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"to {peer}")
        self._thread.start()

    def send(self, message: Message | None) -> None:
        """Start to send; None ends the link. Raises `RankError` if the other end is unreachable."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            if self._error is not None:
                raise _unreachable_error(self.peer, self._error) from self._error
            try:
                self._waiting.put(message, timeout=0.1)
            except queue.Full:
                if time.monotonic() > deadline:
                    raise timeout_error(f"rank {self.peer} of the link", self.timeout_s) from None
            else:
                self._count_bytes(_HEAD_BYTES + (0 if message is None else len(message.data)))
                return

    def close(self) -> None:
        """Wait until all has been sent, or the other end is gone: at its end a session may lose messages.

        Raises `RankError` after the time-out.
        """
        if self._thread.is_alive():
            self.send(None)
            self._thread.join(self.timeout_s)
        if self._thread.is_alive():
            raise timeout_error(f"rank {self.peer} of the link", self.timeout_s)

    def _run(self) -> None:
        try:
            while True:
                try:
                    message = self._waiting.get(timeout=self.timeout_s / _BEATS)
                except queue.Empty:
                    self._send_head(0, _ALIVE)  # or a slow step would look like a failed process
                    continue
                if message is None:
                    return self._send_head(0, _END)
                self._send_head(message.version, len(message.data), message.note)
                if len(message.data):
                    self._send_all(message.data)
        except Exception as error:  # raised by the next send
            self._error = error

    def _send_head(self, version: int, size: int, note: int = 0) -> None:
        self._send_all(torch.tensor([version, size, note]))

    def _send_all(self, data: Tensor) -> None:
        # here, in the thread: gloo completes a send in a wait only
        self.group.send([data], self.peer, 0).wait()


class GlooReceiver:
    """`ReceiveEnd` over gloo. At most `capacity` messages are queued, then the sender blocks.

    max_bytes: of one message; a larger one is an error, before memory is allocated for it.
    """

    def __init__(
        self, group: dist.ProcessGroup, peer: int, max_bytes: int, capacity: int = 2, timeout_s: float = 300.0
    ) -> None:
        self.group = group
        self.peer = peer
        self.max_bytes = max_bytes
        self.timeout_s = timeout_s
        self._queue: queue.Queue[Message | None] = queue.Queue(capacity)
        self._error: BaseException | None = None
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"from {peer}")
        self._thread.start()

    def receive(self, wait_s: float) -> Message | None:
        """Return the next message; None after `wait_s` or at the end. `RankError`: unreachable."""
        if self._has_ended:
            return None
        try:
            message = self._queue.get(timeout=wait_s)
        except queue.Empty:
            return None
        if message is None:
            self._has_ended = True
            if self._error is not None:
                raise _unreachable_error(self.peer, self._error) from self._error
        return message

    def close(self) -> None:
        """Receive and discard the remaining messages, until the other end has closed."""
        # The other end's thread holds messages that gloo sends only once they are received: it could not end.
        deadline = time.monotonic() + self.timeout_s
        while self._thread.is_alive():
            if time.monotonic() > deadline:
                raise timeout_error(f"rank {self.peer} of the link", self.timeout_s)
            self.receive(0.05)
        while self.receive(0.0) is not None:  # the thread has ended before all was taken
            pass

    def _run(self) -> None:
        try:
            for message in incoming_messages(self.group, self.peer, self.max_bytes):
                self._queue.put(message)
        except Exception as error:  # raised by the next receive
            self._error = error
        self._queue.put(None)  # in any case: a consumer that waits in the queue is woken


def incoming_messages(group: dist.ProcessGroup, peer: int, max_bytes: int) -> Iterator[Message]:
    """Yield all messages of a link until the other end closes it. Raises the link's error."""
    head = torch.empty(3, dtype=torch.int64)
    while True:
        group.recv([head], peer, 0).wait()
        version, size, note = head.tolist()
        if size == _END:
            return
        if size == _ALIVE:
            continue
        if not 0 <= size <= max_bytes:
            raise ValueError(f"it sends a message of {size} bytes; the limit is {max_bytes}")
        data = torch.empty(size, dtype=torch.uint8)
        if size:
            group.recv([data], peer, 0).wait()
        yield Message(version=version, data=data, note=note)


def _unreachable_error(peer: int, error: BaseException) -> RankError:
    return RankError(f"rank {peer} of the link is unreachable: {str(error)[:200]}")
