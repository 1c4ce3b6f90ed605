"""Lease of a run folder in a bucket: only one process writes there, also if the clocks of machines differ."""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from paragan.core.errors import CheckpointError, DataError, StorageError
from paragan.storage.bucket import ConflictError, ObjectBucket, Version
from paragan.storage.byte_store import MissingFileError

LEASE = "lease.json"
EXPIRY_S = 30.0  # without a renewal, after which another process may take the lease over
_RENEWALS = 3  # in `expiry_s`: single ones may fail
_POLL_S = 1.0
_NUM_TRIES = 5  # to acquire a lease that others release meanwhile
_MAX_BYTES = 1 << 16


class Lease:
    """The object `lease.json` of a bucket, which a thread renews until `release`.

    expiry_s: a holder that does not renew for so long has died. A contender measures this by its
    own clock: it waits, and looks whether the object changes.
    """

    def __init__(self, bucket: ObjectBucket, expiry_s: float = EXPIRY_S) -> None:
        self.owner = uuid.uuid4().hex
        self.is_lost = False  # another process has taken it over
        self._bucket = bucket
        self._expiry_s = expiry_s
        self._num_writes = 0
        self._renewed_at = 0.0  # by `time.monotonic`
        self._new_holder: Mapping[str, Any] = {}  # once it is lost
        self._version: Version = {}  # of the object, as last written or read; empty: there is none
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_end, name="lease", daemon=True)

    def acquire(self, log: Callable[[str], None], former: str = "") -> None:
        """Take the lease; wait up to `expiry_s` for a holder that may have died.

        log: receives a line before a wait. former: owner that has certainly died. Raises
        `CheckpointError` if another process holds it.
        """
        if not any(self._try_to_acquire(log, former) for _ in range(_NUM_TRIES)):
            raise StorageError(f"{self._bucket.where(LEASE)}: the lease exists, and cannot be read; check the store")
        self._thread.start()

    def check_lost(self) -> None:
        """Raise `CheckpointError` if another process has the lease, `StorageError` if one may have it."""
        if self.is_lost:
            raise self._in_use_error(self._new_holder)
        if time.monotonic() - self._renewed_at > self._expiry_s:  # this process was suspended
            problem = f"the lease was not renewed for {self._expiry_s:g} s"
            raise StorageError(f"{self._bucket.address}: {problem}; check the network and the store")

    def release(self) -> None:
        """End the renewals and remove the lease, unless another process has it."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()  # a few time-outs of a request
        with suppress(DataError, ConflictError):
            if not self.is_lost:
                self._put({"owner": ""})  # fails if a contender has the lease, which must not be deleted
                self._bucket.delete(LEASE)

    def _try_to_acquire(self, log: Callable[[str], None], former: str) -> bool:
        """Take the lease; return False if it was released meanwhile."""
        try:
            self._put(self._content())
            return True
        except ConflictError:  # there is one, perhaps of a process that has died
            pass
        try:
            held, self._version = self._read()
            if held.get("owner") not in ("", former, self.owner):
                self._wait_for_expiry(held, log)
            self._put(self._content())
            return True
        except MissingFileError:
            self._version = {}
            return False
        except ConflictError:
            raise self._in_use_error(held) from None

    def _wait_for_expiry(self, held: Mapping[str, Any], log: Callable[[str], None]) -> None:
        """Return after a release, or `expiry_s` without a renewal; refuse a live holder."""
        log(f"{self._bucket.address} was in use by {_describe(held)}; waiting {self._expiry_s:g} s for a sign of life")
        deadline = time.monotonic() + self._expiry_s
        while time.monotonic() < deadline:
            time.sleep(min(_POLL_S, self._expiry_s / 10))
            current, version = self._read()
            if version != self._version:
                self._version = version
                if current.get("owner") == "":
                    return  # released
                raise self._in_use_error(current)

    def _renew_until_end(self) -> None:
        while not self._ended.wait(self._expiry_s / _RENEWALS):
            with suppress(DataError):  # the next try may succeed
                self._renew()

    def _renew(self) -> None:
        try:
            self._put(self._content())
        except (ConflictError, MissingFileError):  # S3 calls a replaced object missing if it was removed
            try:
                held, version = self._read()
            except MissingFileError:  # removed by a holder that released it late
                self._version = {}
                return
            if held.get("owner") == self.owner:  # the response of a successful try was lost
                self._version = version
                return
            self._new_holder = held
            self.is_lost = True
            self._ended.set()

    def _content(self) -> dict[str, Any]:
        """Return what this process writes; the count makes each object, and so its version, another one."""
        self._num_writes += 1
        return {"owner": self.owner, "count": self._num_writes, "host": socket.gethostname(), "pid": os.getpid()}

    def _put(self, content: Mapping[str, Any]) -> None:
        """Replace the known version. Raises `ConflictError` or `MissingFileError` if the object is another one."""
        began = time.monotonic()
        is_new = not self._version
        self._version = self._bucket.put(LEASE, json.dumps(content).encode(), self._version or None, is_new)
        self._renewed_at = began  # not the end of the request: it may have waited

    def _read(self) -> tuple[Mapping[str, Any], Version]:
        content, version = self._bucket.read(LEASE, _MAX_BYTES)
        with suppress(ValueError, RecursionError):
            if isinstance(held := json.loads(content), dict):
                return held, version
        return {}, version

    def _in_use_error(self, held: Mapping[str, Any]) -> CheckpointError:
        problem = f"run folder {self._bucket.address} is in use by {_describe(held)}"
        return CheckpointError(f"{problem}; wait for it, stop it, or give another --out DIR")


def _describe(held: Mapping[str, Any]) -> str:
    return f"process {held.get('pid', 'unknown')} on {held.get('host', 'an unknown host')}"
