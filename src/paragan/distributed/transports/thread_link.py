"""A link between two threads of one process."""

from __future__ import annotations

import queue

from paragan.distributed.transports.link import Message, late


class ThreadLink:
    """Both ends of it (`Post` and `Inbox`). room: messages under way. `RankError` where nobody takes one in time."""

    def __init__(self, room: int = 2, timeout_s: float = 300.0) -> None:
        self.timeout_s = timeout_s
        self._held: queue.Queue[Message] = queue.Queue(room)

    def send(self, message: Message) -> None:
        try:
            self._held.put(message, timeout=self.timeout_s)
        except queue.Full:
            raise late("the other thread", self.timeout_s) from None

    def receive(self, wait_s: float) -> Message | None:
        try:
            return self._held.get(timeout=wait_s) if wait_s > 0 else self._held.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Nothing is left to do: both threads end with their process."""
