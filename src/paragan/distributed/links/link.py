"""Links between two processes or threads: messages, and protocols of the ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from paragan.core.errors import RankError


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a link. version: of its player. data: uint8. note: a number, such as a count or flags.

    Between processes data is on the host. Between threads it stays on its device, and `tensors` may
    take its place; ready: the end of the work on the sender's stream that they depend on.
    """

    version: int
    data: Tensor
    note: int = 0
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    ready: torch.Event | None = None


class SendEnd(Protocol):
    """The sending end of a link. Not thread-safe."""

    def send(self, message: Message) -> None:
        """Start to send; blocks while as many messages as the link holds are in flight. Data must not change."""


class ReceiveEnd(Protocol):
    """The receiving end of a link. Messages arrive in order."""

    def receive(self, wait_s: float) -> Message | None:
        """Return the next message; None if none has arrived within `wait_s`, or the sender has ended.

        Only time separates these: a receiver repeats the call up to a time-out of its own, see `timeout_error`.
        """


def timeout_error(who: str, timeout_s: float) -> RankError:
    """Return the error of a message that was not taken, or did not arrive, in time."""
    return RankError(f"{who} did not answer within {timeout_s:g} s")
