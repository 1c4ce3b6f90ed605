"""Byte ranges of remote files: neighbours are joined, and requested in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from paragan.core.errors import DataError
from paragan.storage.block_store import BlockStore
from paragan.storage.byte_store import ByteRange, ByteStore, StoredFile
from paragan.storage.disk_cache import DiskCache
from paragan.storage.request_client import RequestClient
from paragan.storage.transfers import Transfer, Transfers

_MAX_GAP_BYTES = 64 << 10  # received in about the CPU time of a request
_MAX_REQUEST_BYTES = 8 << 20
_MAX_RESPONSES = 5


class RemoteStore(ByteStore):
    """Files behind a client. cache: for copies of whole files, and blocks of those to be cached.

    transfers: how requests run.
    """

    num_attempts = 2

    def __init__(self, client: RequestClient, cache: DiskCache, transfers: Transfers) -> None:
        self.address = client.address
        self.transfers = transfers
        self._client = client
        self._cache = cache

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        spans = join_ranges(ranges)
        transfers = []
        for span in spans:
            call = partial(self._client.get, span.name, span.start, span.stop)
            transfers.append(Transfer(call, span.num_bytes, self.where(span.name)))
        self.transfers.run(transfers)
        return _cut(ranges, spans, [transfer.result or b"" for transfer in transfers])

    def read_file(self, name: str, max_bytes: int) -> bytes:
        """Request the file until two responses are equal, because no sha256 of it is known."""
        responses: set[bytes] = set()
        for _ in range(_MAX_RESPONSES):
            content = self._request(partial(self._client.get_file, name, max_bytes), name)
            if len(content) > max_bytes:
                raise DataError(f"{self.where(name)}: more than {max_bytes:,} bytes; check data.path")
            if content in responses:
                return content
            responses.add(content)
        raise DataError(f"{self.where(name)}: each response has other bytes; check the network and the server")

    def size(self, name: str) -> int:
        return int(self._request(lambda: str(self._client.size(name)).encode(), name))

    def local_copy(self, file: StoredFile) -> Path:
        return self._cache.copy(self, file)

    def with_cached_blocks(self, files: Sequence[StoredFile]) -> ByteStore:
        return BlockStore(self, self._cache, files) if self._cache.limit_bytes else self

    def _request(self, call: Callable[[], bytes], name: str) -> bytes:
        transfer = Transfer(call, None, self.where(name))
        self.transfers.run([transfer])
        return transfer.result or b""


def join_ranges(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """Return ranges to request, sorted, that contain all of these.

    Ranges of a file with at most 64 KiB between them are joined, up to 8 MiB.
    """
    joined: list[ByteRange] = []
    for wanted in sorted(ranges, key=lambda each: (each.name, each.start, each.stop)):
        last = joined[-1] if joined else None
        if last is not None and last.name == wanted.name and wanted.start <= last.stop + _MAX_GAP_BYTES:
            stop = max(last.stop, wanted.stop)
            if stop == last.stop or stop - last.start <= _MAX_REQUEST_BYTES:
                joined[-1] = ByteRange(last.name, last.start, stop)
                continue
        joined.append(wanted)
    return joined


def _cut(ranges: Sequence[ByteRange], spans: Sequence[ByteRange], contents: Sequence[bytes]) -> list[bytes]:
    """Return the bytes of ranges from those of the joined ranges."""
    number = 0
    found: dict[ByteRange, bytes] = {}
    for wanted in sorted(ranges, key=lambda each: (each.name, each.start, each.stop)):
        while not _contains(spans[number], wanted):
            number += 1
        start = wanted.start - spans[number].start
        found[wanted] = contents[number][start : start + wanted.num_bytes]
    return [found[wanted] for wanted in ranges]


def _contains(span: ByteRange, wanted: ByteRange) -> bool:
    return span.name == wanted.name and span.start <= wanted.start and wanted.stop <= span.stop
