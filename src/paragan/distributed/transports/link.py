"""What links carry, and what both of their ends promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from paragan.core.errors import RankError


@dataclass(frozen=True)
class Message:
    """version: of the player it is of. data: uint8, on the host. note: a number beside it."""

    version: int
    data: Tensor
    note: int = 0


class SendEnd(Protocol):
    """The end that sends. One thread at a time uses it."""

    def send(self, message: Message) -> None:
        """Returns when the message is under way; waits while `room` others are. The data must not change any more."""

    def close(self) -> None:
        """The other end has had all, or is gone."""


class ReceiveEnd(Protocol):
    """The end that receives, in the order in which messages were sent."""

    def receive(self, wait_s: float) -> Message | None:
        """The next; None if none has come within `wait_s`, or none will."""

    def close(self) -> None: ...


def timeout_error(who: str, timeout_s: float) -> RankError:
    """Nobody took, or gave, a message in time."""
    return RankError(f"{who} did not answer within {timeout_s:g} s")
