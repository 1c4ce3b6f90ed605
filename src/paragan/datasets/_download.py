"""Files from where their makers put them, checked by size and sha256, kept in a cache."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import DataError

_READ_TIMEOUT_S = 20  # the longest wait for the next bytes
_TOTAL_TIMEOUT_S = 3600  # for a whole file
_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web, of this many bytes and with this sha256."""

    url: str
    num_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def download(remote: RemoteFile, name: str) -> Path:
    """The file in the cache's folder `name`, fetched if it is not there yet.

    The cache is the folder PARAGAN_CACHE, or ~/.cache/paragan. Raises `DataError` where there is no network (or
    PARAGAN_OFFLINE is set), or what comes is not the file: nothing is kept then.
    """
    path = cache_dir() / name / remote.name
    if path.is_file() and path.stat().st_size == remote.num_bytes:
        return path
    if os.environ.get("PARAGAN_OFFLINE"):
        raise _download_error(remote, "PARAGAN_OFFLINE is set")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{remote.name}.")  # others may be fetching it, too
    try:
        with os.fdopen(handle, "wb") as stream:
            for piece in _download_chunks(remote):
                stream.write(piece)
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return path


def cache_dir() -> Path:
    """The folder that fetched files are kept in."""
    return Path(os.environ.get("PARAGAN_CACHE") or Path.home() / ".cache" / "paragan")


def _download_chunks(remote: RemoteFile) -> Iterator[bytes]:
    """The file's bytes, piece by piece; an error at the end where they were not the right ones."""
    digest, count, began = hashlib.sha256(), 0, time.monotonic()
    try:
        with urllib.request.urlopen(remote.url, timeout=_READ_TIMEOUT_S) as answer:
            while piece := answer.read(_CHUNK_BYTES):
                count += len(piece)
                if count > remote.num_bytes:
                    raise _download_error(remote, f"found more than the {remote.num_bytes:,} bytes expected")
                if time.monotonic() - began > _TOTAL_TIMEOUT_S:
                    raise _download_error(remote, f"{count:,} of {remote.num_bytes:,} bytes came within an hour")
                digest.update(piece)
                yield piece
    except urllib.error.HTTPError as error:
        error.close()
        raise _download_error(remote, f"the answer was {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _download_error(remote, str(getattr(error, "reason", error)) or type(error).__name__) from None
    if count != remote.num_bytes:
        raise _download_error(remote, f"found {count:,} bytes, expected {remote.num_bytes:,}")
    if digest.hexdigest() != remote.sha256:
        raise _download_error(remote, f"found sha256 {digest.hexdigest()[:16]}…, expected {remote.sha256[:16]}…")


def _download_error(remote: RemoteFile, why: str) -> DataError:
    return DataError(
        f"data.path: found nothing, and {remote.url} could not be fetched ({why}); get {remote.name} and give the "
        "folder it is in: data.path=FOLDER"
    )
