"""Failures of requests to an object store: which may pass, and what to do about others."""

import re

from paragan.core.errors import DataError
from paragan.storage.byte_store import MissingFileError

_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal")  # searched for credentials, at last
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket), and AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""Variables of the environment, by the scheme of the address."""


class TransientError(Exception):
    """A request failed in a way that a repetition may not; the text is a reason of a few words."""


def store_failure(error: Exception, where: str, has_answered: bool, setting: str) -> Exception:
    """Return a failure of a request as `TransientError` or `DataError`, without its text, which may have signatures.

    where: the file in messages. has_answered: the store has answered a request, so there are credentials, and a search
    for them that fails may pass. setting: what may be wrong.
    """
    text = str(error)
    kind = type(error).__name__  # by name: the classes are those of an optional package, obstore
    fix = credentials_hint(where.partition("://")[0])
    if any(server in text for server in _METADATA_SERVERS) and not has_answered:
        return DataError(f"{where}: no credentials; {fix}")
    if kind == "NotFoundError" or isinstance(error, FileNotFoundError):
        return MissingFileError(f"{where}: no such file; check {setting}")
    if kind == "InvalidPathError":
        return DataError(f"{where}: has an object with '..' or an empty part in its name; remove that object")
    if kind == "NotSupportedError":
        return DataError(f"{where}: the server ignores byte ranges; use one that supports them, such as nginx")
    # as in "status 404" or "status code 301", and in "non-2xx status code: 503 Service Unavailable"
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


def credentials_hint(scheme: str) -> str:
    """Return what to do where a store refuses access."""
    if scheme in CREDENTIALS:
        return f"set {CREDENTIALS[scheme]} in the environment"
    return "use a server that needs no login"
