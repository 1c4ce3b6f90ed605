"""Link between the two threads of a process, whose messages stay on their device."""

from __future__ import annotations

from dataclasses import replace

from paragan.distributed.transports.link import Message, ThreadLink
from paragan.hardware.device import mark_ready, wait_until_ready


class DeviceLink(ThreadLink):
    """`ThreadLink` between threads that use two streams of one accelerator.

    The receiver's stream waits for the sender's work, the host does not. On the CPU it is a
    `ThreadLink`.
    """

    def send(self, message: Message) -> None:
        """Add a message, as soon as the queue has room."""
        first = next(iter(message.tensors.values()), message.data)
        super().send(replace(message, ready=mark_ready(first)))

    def receive(self, wait_s: float) -> Message | None:
        """Return the next message; None after `wait_s`."""
        message = super().receive(wait_s)
        if message is not None:
            wait_until_ready(message.ready, (message.data, *message.tensors.values()))
        return message
