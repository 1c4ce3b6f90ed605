"""Stores of obstore, and what their errors mean: S3 and compatible ones, Google Cloud Storage, Azure, web servers."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any

from paragan.core.errors import DataError
from paragan.storage.byte_store import MissingFileError

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket), and AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""Variables of the environment, by the scheme of the address."""

_MAX_RETRIES = 3  # by obstore, of a request without an answer or with one that may pass
_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal")  # searched for credentials, at last
_first_process = 0  # that used obstore; its threads do not exist in forked ones


class TransientError(Exception):
    """A request failed in a way that a repetition may not; the text is a reason of a few words."""


def open_obstore(address: str, timeout_s: float) -> Any:
    """Return obstore's store of an address, whose settings come from the environment.

    timeout_s: of one request with its response. Raises `DataError` without obstore, and for incomplete settings.
    """
    try:
        from obstore.store import from_url
    except ImportError:
        need = f"{address}: remote files need the package obstore"
        raise DataError(f"{need}; install it with: pip install 'paragan[cloud]'") from None
    refuse_forked(address)
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
        raise DataError(f"{address}: the settings of the store are incomplete; {_credentials(scheme)}") from None


def translate(error: Exception, where: str, has_answered: bool, setting: str) -> Exception:
    """Return a failure of a request as `TransientError` or `DataError`, without its text, which may have signatures.

    where: the file in messages. has_answered: missing credentials are a failure that may pass. setting: what may be
    wrong.
    """
    text = str(error)
    kind = type(error).__name__
    fix = _credentials(where.partition("://")[0])
    if any(server in text for server in _METADATA_SERVERS) and not has_answered:
        return DataError(f"{where}: no credentials; {fix}")
    if kind == "NotFoundError" or isinstance(error, FileNotFoundError):
        return MissingFileError(f"{where}: no such file; check {setting}")
    if kind == "InvalidPathError":
        return DataError(f"{where}: has an object with '..' or an empty part in its name; remove that object")
    if kind == "NotSupportedError":
        return DataError(f"{where}: the server ignores byte ranges; use one that supports them, such as nginx")
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


def refuse_forked(address: str) -> None:
    """Raise `DataError` in a forked process, in which obstore waits forever for threads of its parent."""
    global _first_process
    _first_process = _first_process or os.getpid()
    if _first_process != os.getpid():
        problem = "remote files cannot be read in a forked process"
        raise DataError(f"{address}: {problem}; start processes with the method 'spawn'")


def _credentials(scheme: str) -> str:
    """Return what to do where a store refuses access."""
    if scheme in CREDENTIALS:
        return f"set {CREDENTIALS[scheme]} in the environment"
    return "use a server that needs no login"
