"""Downloads of data set files into a cache, verified by size and sha256."""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import DataError
from paragan.core.files import atomic_write

_READ_TIMEOUT_S = 20  # longest wait for the next bytes
_TOTAL_TIMEOUT_S = 3600  # for one file
_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web with its size and sha256."""

    url: str
    num_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """File name: the last part of the URL."""
        return self.url.rpartition("/")[2]


def download(remote: RemoteFile, name: str) -> Path:
    """Return the file from the folder `name` of the cache, after downloading it if it is missing.

    The cache is the folder PARAGAN_CACHE, or ~/.cache/paragan. Raises `DataError` without a network, if
    PARAGAN_OFFLINE is set, or for another size or sha256; such a download is deleted.
    """
    path = cache_dir() / name / remote.name
    if path.is_file() and path.stat().st_size == remote.num_bytes:
        return path
    if os.environ.get("PARAGAN_OFFLINE"):
        raise _download_error(remote, "PARAGAN_OFFLINE is set")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:  # another process may download it too
        for chunk in _download_chunks(remote):
            file.write(chunk)
    return path


def cache_dir() -> Path:
    """Return the folder of downloaded and derived files: PARAGAN_CACHE, or ~/.cache/paragan."""
    return Path(os.environ.get("PARAGAN_CACHE") or Path.home() / ".cache" / "paragan")


def _download_chunks(remote: RemoteFile) -> Iterator[bytes]:
    """Yield the bytes of the file chunk by chunk; raise at the end if size or sha256 differ."""
    digest = hashlib.sha256()
    count = 0
    began = time.monotonic()
    try:
        with urllib.request.urlopen(remote.url, timeout=_READ_TIMEOUT_S) as response:
            while chunk := response.read(_CHUNK_BYTES):
                count += len(chunk)
                if count > remote.num_bytes:
                    raise _download_error(remote, f"it has more than the expected {remote.num_bytes:,} bytes")
                if time.monotonic() - began > _TOTAL_TIMEOUT_S:
                    raise _download_error(remote, f"{count:,} of {remote.num_bytes:,} bytes arrived within an hour")
                digest.update(chunk)
                yield chunk
    except urllib.error.HTTPError as error:
        error.close()
        raise _download_error(remote, f"HTTP status {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _download_error(remote, str(getattr(error, "reason", error)) or type(error).__name__) from None
    if count != remote.num_bytes:
        raise _download_error(remote, f"it has {count:,} bytes instead of {remote.num_bytes:,}")
    if digest.hexdigest() != remote.sha256:
        raise _download_error(remote, f"its sha256 is {digest.hexdigest()[:16]}… instead of {remote.sha256[:16]}…")


def _download_error(remote: RemoteFile, why: str) -> DataError:
    return DataError(
        f"data.path is empty and {remote.url} cannot be downloaded ({why}); get {remote.name} "
        "yourself and pass its folder: data.path=DIR"
    )
