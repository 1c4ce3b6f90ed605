"""Choice of a store by its address."""

from __future__ import annotations

from pathlib import Path

from paragan.core.addresses import is_url, secret_in_url
from paragan.core.errors import DataError
from paragan.storage.byte_store import ByteStore
from paragan.storage.disk_cache import DiskCache
from paragan.storage.http_client import HttpClient
from paragan.storage.local_store import LocalStore
from paragan.storage.object_client import ObjectClient
from paragan.storage.remote_store import RemoteStore
from paragan.storage.request_client import RequestClient
from paragan.storage.transfers import Transfers

_TIMEOUT_S = 30.0  # of one request with its response


def open_store(path: str, cache_bytes: int = 0) -> ByteStore:
    """Return the files of a folder, or below an http(s)://, s3://, gs:// or az:// address.

    cache_bytes: limit of the disk cache of remote files; 0: only whole files are copied. Raises
    `DataError` for an address with a user, password or query, and for an object store without obstore.
    """
    if problem := secret_in_url(path):
        raise DataError(f"data.{problem}")
    if not is_url(path):
        return LocalStore(Path(path))
    client: RequestClient
    client = HttpClient(path, _TIMEOUT_S) if path.startswith("http") else ObjectClient(path, _TIMEOUT_S)
    return RemoteStore(client, DiskCache(cache_bytes), Transfers(_TIMEOUT_S))
