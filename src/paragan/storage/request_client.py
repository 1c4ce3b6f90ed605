"""One request at a time to a remote place: the part of remote storage that differs between protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TransientError(Exception):
    """A request failed in a way that a repetition may not; the text is a reason of a few words."""


class RequestClient(ABC):
    """Requests for files below `address`; each has a time-out.

    Methods raise `TransientError` if a repetition can help, else `DataError`. Several threads may
    call them at the same time.
    """

    address: str

    @abstractmethod
    def get(self, name: str, start: int, stop: int) -> bytes:
        """Return a range of a file; possibly fewer bytes."""

    @abstractmethod
    def get_file(self, name: str, max_bytes: int) -> bytes:
        """Return a whole file, or more than `max_bytes` bytes of a larger one."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the number of bytes of a file."""

    def where(self, name: str) -> str:
        """Return the address of a file in messages."""
        return f"{self.address}/{name}"
