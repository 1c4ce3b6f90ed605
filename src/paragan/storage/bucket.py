"""Objects below an address: ranges, conditional puts, listings, uploads in parts, with retries.

Requests are obstore's: S3 and compatible stores, Google Cloud Storage, Azure, web servers.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from paragan.core.addresses import secret_in_url
from paragan.core.errors import DataError, StorageError
from paragan.core.files import atomic_write
from paragan.storage.byte_store import MissingFileError
from paragan.storage.store_failures import CREDENTIALS, TransientError, credentials_hint, store_failure

T = TypeVar("T")
Version = dict[str, str]
"""Identity of one content of an object: its ETag, and its version if the store has them."""

_TIMEOUT_S = 30.0  # of one request with its response; a part of an upload has 5 MiB
_NUM_TRIES = 3
_FIRST_PAUSE_S = 0.5
_MAX_CONCURRENT_PARTS = 4
_MAX_RETRIES = 3  # by obstore, of a request without an answer or with one that may pass
_first_process = 0  # that used obstore; its threads do not exist in forked ones


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
            response = self._store.get(name)
            self._check_size(name, response.meta["size"], max_bytes)
            content = bytes(response.bytes())
            _check_complete(len(content), response.meta["size"])
            return content, _version(response.meta)

        return self._attempt(name, request)

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Return bytes `start` to `stop` of an object, which has so many."""

        def request() -> bytes:
            content = bytes(self._store.get_range(name, start=start, end=stop))
            _check_complete(len(content), stop - start)
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
            response = self._store.get(name)
            self._check_size(name, response.meta["size"], max_bytes)
            with atomic_write(path) as file:
                num_bytes = sum(file.write(chunk) for chunk in response.stream())
                _check_complete(num_bytes, response.meta["size"])

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
            return {
                meta["path"]: StoredObject(meta["size"], meta["last_modified"].timestamp())
                for batch in self._store.list(prefix or None)
                for meta in batch
            }

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
        check_not_forked(self.address)
        reason = ""
        for number in range(self._num_tries):
            if number:
                time.sleep(_FIRST_PAUSE_S * 2 ** (number - 1))
            try:
                answer = request()
                self._has_answered = True
                return answer
            except Exception as error:
                failure = self._translated(error, name)
                if not isinstance(failure, TransientError):
                    raise failure from None
                reason = str(failure)
        raise StorageError(
            f"{self.where(name)}: {reason}, after {self._num_tries} tries; "
            "check the network and the store, then run the command again"
        )

    def _translated(self, error: Exception, name: str) -> Exception:
        is_missing = isinstance(error, FileNotFoundError) and error.filename is None  # of the store
        if isinstance(error, (DataError, TransientError, OSError)) and not is_missing:
            return error
        if type(error).__name__ in ("AlreadyExistsError", "PreconditionError"):
            return ConflictError(self.where(name))
        return store_failure(error, self.where(name), self._has_answered, self._setting)


def open_bucket(address: str, timeout_s: float = _TIMEOUT_S) -> ObjectBucket:
    """Open an address of an object store for reading and writing.

    timeout_s: of one request. Raises `DataError` for another address, without obstore, and for incomplete settings.
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


def _check_complete(num_bytes: int, expected: int) -> None:
    if num_bytes != expected:
        raise TransientError(f"{num_bytes:,} of {expected:,} bytes arrived")


def open_obstore(address: str, timeout_s: float) -> Any:
    """Return obstore's store of an address, whose settings come from the environment.

    timeout_s: of one request with its response. Raises `DataError` without obstore, and for incomplete settings.
    """
    try:
        from obstore.store import from_url
    except ImportError:
        raise DataError(
            f"{address}: remote files need the package obstore; install it with: pip install 'paragan[cloud]'"
        ) from None
    check_not_forked(address)
    scheme = address.partition("://")[0]
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "") if scheme == "s3" else address
    options = {
        "timeout": f"{timeout_s:g}s",
        "connect_timeout": f"{timeout_s / 3:g}s",
        "allow_http": str(endpoint.startswith("http://")).lower(),
    }
    retries = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=timeout_s / 2)}
    try:
        return from_url(address, client_options=options, retry_config=retries)  # type: ignore[arg-type]
    except Exception:
        raise DataError(f"{address}: the settings of the store are incomplete; {credentials_hint(scheme)}") from None


def check_not_forked(address: str) -> None:
    """Raise `DataError` in a forked process, in which obstore waits forever for threads of its parent."""
    global _first_process
    _first_process = _first_process or os.getpid()
    if _first_process != os.getpid():
        raise DataError(
            f"{address}: remote files cannot be read in a forked process; start processes with the method 'spawn'"
        )
