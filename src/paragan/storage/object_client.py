"""Requests to object stores by obstore: S3 and compatible ones, Google Cloud Storage, Azure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from paragan.core.errors import DataError
from paragan.storage.byte_store import MissingFileError
from paragan.storage.request_client import RequestClient, TransientError

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket), and AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal")  # searched for credentials, at last
_first_process = 0  # that used obstore; its threads do not exist in forked ones


class ObjectClient(RequestClient):
    """Files below s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX.

    Credentials, region and endpoint (AWS_ENDPOINT_URL) come from the environment. Raises
    `DataError` without obstore. timeout_s: of one request, with its response.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address.rstrip("/")
        self._has_read = False  # afterwards, missing credentials are a failure that may pass
        # without repetitions, which are those of `Transfers`
        self._store = open_obstore(address, timeout_s, {"max_retries": 0})

    def get(self, name: str, start: int, stop: int) -> bytes:
        import obstore

        with self._errors(name):
            found = bytes(obstore.get_range(self._store, name, start=start, end=stop))
        self._has_read = True
        return found

    def get_file(self, name: str, max_bytes: int) -> bytes:
        import obstore

        with self._errors(name):
            found = obstore.get(self._store, name)
            return bytes(found.bytes()) if found.meta["size"] <= max_bytes else bytes(max_bytes + 1)

    def size(self, name: str) -> int:
        import obstore

        with self._errors(name):
            return int(obstore.head(self._store, name)["size"])

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn errors into ours; their texts may contain signatures and are never repeated."""
        _refuse_forked(self.address)
        try:
            yield
        except Exception as error:
            raise translate(error, self.where(name), self._has_read) from None


def open_obstore(address: str, timeout_s: float, retries: Mapping[str, Any]) -> Any:
    """Return obstore's store of an address, whose settings come from the environment.

    timeout_s: of one request. retries: obstore's repetitions. Raises `DataError` as `ObjectClient`.
    """
    scheme = address.partition("://")[0]
    if scheme not in _CREDENTIALS:
        known = " or ".join(f"{name}://" for name in _CREDENTIALS)
        problem = "is not an address of an object store; use one that begins with"
        raise DataError(f"{address} {problem} {known}")
    try:
        from obstore.store import from_url
    except ImportError:
        need = f"{address}: object stores need the package obstore"
        raise DataError(f"{need}; install it with: pip install 'paragan[cloud]'") from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    options = {"timeout": f"{timeout_s:g}s", "connect_timeout": f"{timeout_s / 3:g}s"}
    if scheme == "s3" and endpoint.startswith("http://"):
        options["allow_http"] = "true"
    _refuse_forked(address)
    try:
        return from_url(address.rstrip("/"), client_options=options, retry_config=retries)
    except Exception:
        problem = f"set {_CREDENTIALS[scheme]} in the environment"
        raise DataError(f"{address}: the settings of the object store are incomplete; {problem}") from None


def translate(error: Exception, where: str, has_read: bool, setting: str = "data.path") -> Exception:
    """Return a failure of a request as `TransientError` or `DataError`, without its text.

    where: the file in messages. has_read: missing credentials are a failure that may pass. setting:
    what may be wrong.
    """
    text = str(error)
    scheme = where.partition("://")[0]
    kind = type(error).__name__
    fix = f"set {_CREDENTIALS.get(scheme, 'credentials')} in the environment"
    if any(server in text for server in _METADATA_SERVERS) and not has_read:
        return DataError(f"{where}: no credentials; {fix}")
    if kind == "NotFoundError" or isinstance(error, FileNotFoundError):
        return MissingFileError(f"{where}: no such file; check {setting}")
    status = re.search(r"status (?:code )?(\d{3})|\b([45]\d\d) [A-Z]", text)
    code = int(status[1] or status[2]) if status else 0
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or code in (401, 403):
        return DataError(f"{where}: access denied; {fix}")
    if code == 416:
        return DataError(f"{where}: shorter than in dataset.json; upload the file again")
    if 400 <= code < 500 and code not in (408, 429):
        return DataError(f"{where}: status {code}; check {setting} and the credentials")
    if 300 <= code < 400:
        return DataError(f"{where}: status {code}: the bucket is elsewhere; set AWS_REGION")
    if kind == "GenericError":
        timed_out = "no response in time" if "timed out" in text or "timeout" in text else "the connection failed"
        return TransientError(f"status {code}" if code else timed_out)
    return DataError(f"{where}: cannot be read ({kind}); check {setting} and the environment")


def _refuse_forked(address: str) -> None:
    """Raise `DataError` in a forked process, in which obstore waits forever for threads of its parent."""
    global _first_process
    _first_process = _first_process or os.getpid()
    if _first_process != os.getpid():
        problem = "object stores cannot be read in a forked process"
        raise DataError(f"{address}: {problem}; start processes with the method 'spawn'")
