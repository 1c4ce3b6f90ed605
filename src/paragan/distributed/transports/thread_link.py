"""A link between two threads of one process."""

from __future__ import annotations

import queue

from paragan.distributed.transports.link import Message, timeout_error


class ThreadLink:
    """Both ends of the link (`SendEnd`, `ReceiveEnd`). room: messages in flight. `RankError` on a time-out."""

    def __init__(self, room: int = 2, timeout_s: float = 300.0) -> None:
        self.timeout_s = timeout_s
        self._queue: queue.Queue[Message] = queue.Queue(room)

    def send(self, message: Message) -> None:
        try:
            self._queue.put(message, timeout=self.timeout_s)
        except queue.Full:
            raise timeout_error("the other thread", self.timeout_s) from None

    def receive(self, wait_s: float) -> Message | None:
        try:
            return self._queue.get(timeout=wait_s) if wait_s > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Do nothing: both threads end with their process."""
