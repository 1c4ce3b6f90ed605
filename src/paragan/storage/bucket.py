"""Objects below an address: ranges, conditional puts, listings, uploads in parts, with retries."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from paragan.core.addresses import secret_in_url
from paragan.core.errors import DataError, StorageError
from paragan.core.files import atomic_write
from paragan.storage.byte_store import MissingFileError
from paragan.storage.object_store import CREDENTIALS, TransientError, open_obstore, refuse_forked, translate

T = TypeVar("T")
Version = dict[str, str]
"""Identity of one content of an object: its ETag, and its version if the store has them."""

_TIMEOUT_S = 30.0  # of one request with its response; a part of an upload has 5 MiB
_NUM_TRIES = 3
_FIRST_PAUSE_S = 0.5
_MAX_CONCURRENT_PARTS = 4


class TooLargeError(DataError):
    """An object has more bytes than its reader accepts."""


class ConflictError(Exception):
    """The object exists, or has another version than the condition of a put."""


@dataclass(frozen=True)
class StoredObject:
    """An object of a listing. modified: POSIX seconds, by the store's clock."""

    num_bytes: int
    modified: float


class ObjectBucket:
    """Objects below `address`. store: of obstore. setting: the one with the address, in messages.

    Methods retry failures that may pass, then raise `StorageError`; `DataError` for others. No call
    takes longer than a few time-outs of a request, per 5 MiB. Several threads may call them.
    """

    def __init__(self, store: Any, address: str, num_tries: int = _NUM_TRIES, setting: str = "the address") -> None:
        self.address = address
        self._store = store
        self._num_tries = num_tries
        self._setting = setting
        self._has_answered = False

    def read(self, name: str, max_bytes: int) -> tuple[bytes, Version]:
        """Return content and version of a small object; `MissingFileError` if there is none."""

        def request() -> tuple[bytes, Version]:
            found = self._store.get(name)
            self._check_size(name, found.meta["size"], max_bytes)
            content = bytes(found.bytes())
            _refuse_truncated(len(content), found.meta["size"])
            return content, _version(found.meta)

        return self._attempt(name, request)

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop` of an object, which has so many."""

        def request() -> bytes:
            content = bytes(self._store.get_range(name, start=start, end=stop))
            _refuse_truncated(len(content), stop - start)
            return content

        return self._attempt(name, request)

    def size(self, name: str) -> int:
        """Return the number of bytes of an object."""
        return self._attempt(name, lambda: int(self._store.head(name)["size"]))

    def version(self, name: str) -> Version:
        """Return the version of an object."""
        return self._attempt(name, lambda: _version(self._store.head(name)))

    def download(self, name: str, path: Path, max_bytes: int) -> None:
        """Write an object to a file, which appears when it is complete; `TooLargeError` above `max_bytes`."""

        def request() -> None:
            found = self._store.get(name)
            self._check_size(name, found.meta["size"], max_bytes)
            num_bytes = 0
            with atomic_write(path) as file:
                for chunk in found.stream():
                    num_bytes += file.write(chunk)
                _refuse_truncated(num_bytes, found.meta["size"])

        self._attempt(name, request)

    def put(self, name: str, content: bytes | Path, condition: Version | None = None, new: bool = False) -> Version:
        """Store an object, in parts if it is large; return its version.

        condition: the version that it replaces. new: it replaces none. Raises `ConflictError` if
        that does not hold; an earlier try of the same call may then have succeeded.
        """
        mode: Any = "create" if new else condition

        def request() -> Version:
            limits = {"mode": mode, "max_concurrency": _MAX_CONCURRENT_PARTS}
            return _version(self._store.put(name, content, **limits))

        return self._attempt(name, request)

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        """Return all objects below a prefix, which ends at a slash, by name."""

        def request() -> dict[str, StoredObject]:
            found = {}
            for batch in self._store.list(prefix or None):
                for meta in batch:
                    modified = meta["last_modified"].timestamp()
                    found[meta["path"]] = StoredObject(meta["size"], modified)
            return found

        return self._attempt(prefix, request)

    def delete(self, name: str) -> None:
        """Remove an object, if it exists."""
        with suppress(MissingFileError):
            self._attempt(name, lambda: self._store.delete(name))

    def where(self, name: str) -> str:
        """Return the address of an object in messages."""
        return f"{self.address}/{name}"

    def _check_size(self, name: str, num_bytes: int, max_bytes: int) -> None:
        if num_bytes > max_bytes:
            raise TooLargeError(f"{self.where(name)}: more than {max_bytes:,} bytes; check {self._setting}")

    def _attempt(self, name: str, request: Callable[[], T]) -> T:
        refuse_forked(self.address)
        reason = ""
        for number in range(self._num_tries):
            if number:
                time.sleep(_FIRST_PAUSE_S * 2 ** (number - 1))
            try:
                found = request()
                self._has_answered = True
                return found
            except Exception as error:
                failure = self._translated(error, name)
                if not isinstance(failure, TransientError):
                    raise failure from None
                reason = str(failure)
        hint = "check the network and the store, then run the command again"
        raise StorageError(f"{self.where(name)}: {reason}, after {self._num_tries} tries; {hint}")

    def _translated(self, error: Exception, name: str) -> Exception:
        is_missing = isinstance(error, FileNotFoundError) and error.filename is None  # of the store
        if isinstance(error, (DataError, TransientError, OSError)) and not is_missing:
            return error
        if type(error).__name__ in ("AlreadyExistsError", "PreconditionError"):
            return ConflictError(self.where(name))
        return translate(error, self.where(name), self._has_answered, self._setting)


def open_bucket(address: str, timeout_s: float = _TIMEOUT_S) -> ObjectBucket:
    """Open an address of an object store for reading and writing.

    timeout_s: of one request. Raises `DataError` for another address, without obstore, and for
    incomplete settings.
    """
    if problem := secret_in_url(address):
        raise DataError(problem)
    if address.partition("://")[0] not in CREDENTIALS:
        known = " or ".join(f"{name}://" for name in CREDENTIALS)
        raise DataError(f"{address} is not an address of an object store; use one that begins with {known}")
    address = address.rstrip("/")
    return ObjectBucket(open_obstore(address, timeout_s), address)


def _version(meta: Any) -> Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta.get(key)}


def _refuse_truncated(num_bytes: int, expected: int) -> None:
    if num_bytes != expected:
        raise TransientError(f"{num_bytes:,} of {expected:,} bytes arrived")
