"""Byte ranges of remote files: neighbours are joined and requested in parallel; blocks are cached on the local disk."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from paragan.core.addresses import secret_in_url
from paragan.core.errors import DataError
from paragan.storage.bucket import ObjectBucket, check_not_forked, open_obstore
from paragan.storage.byte_store import ByteRange, ByteStore, StoredFile
from paragan.storage.disk_cache import DiskCache

BLOCK_BYTES = 256 << 10
_TIMEOUT_S = 30.0  # of one request with its response
_NUM_TRIES = 6  # with pauses of 16 s together
_MAX_REQUESTS = 64  # at once, of a store
_MAX_GAP_BYTES = 64 << 10  # received in about the CPU time of a request
_MAX_REQUEST_BYTES = 8 << 20
_MAX_RESPONSES = 5


@dataclass(frozen=True)
class _Piece:
    """Bytes `start` to `stop` of a block of a file."""

    file: StoredFile
    number: int
    start: int
    stop: int

    @property
    def block(self) -> ByteRange:
        """The range of the whole block."""
        first = self.number * BLOCK_BYTES
        return ByteRange(self.file.name, first, min(first + BLOCK_BYTES, self.file.num_bytes))

    @property
    def entry(self) -> tuple[str, str]:
        """Origin and name of the block in the cache."""
        return self.file.sha256, f"{self.number:06d}.block"


class RemoteStore(ByteStore):
    """Files of a bucket or below another address. cache: for copies of whole files, and for blocks (`cache_blocks`).

    Ranges of a file with at most 64 KiB between them are one request, up to 8 MiB. (obstore's `get_ranges` joins them,
    too, but panics when a response ends before the second of them.)
    """

    num_attempts = 2

    def __init__(self, bucket: ObjectBucket, cache: DiskCache) -> None:
        self.address = bucket.address
        self._bucket = bucket
        self._cache = cache
        self._cached: dict[str, StoredFile] = {}  # files of which blocks are cached
        self._pool = ThreadPoolExecutor(_MAX_REQUESTS, "request")

    def cache_blocks(self, files: Sequence[StoredFile]) -> None:
        """Cache the blocks of the first of these files that fit into the cache together.

        A block is found by the sha256 of its file, and not compared with a hash: a reader that finds wrong bytes calls
        `forget` and reads again.
        """
        bytes_left = self._cache.capacity_bytes
        for file in files:
            bytes_left -= file.num_bytes
            if bytes_left < 0:
                return
            self._cached[file.name] = file
            self.num_attempts = 3  # the first may find a damaged block in the cache

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        pieces_of = {wanted: list(self._pieces(wanted)) for wanted in ranges}
        pieces = chain.from_iterable(pieces_of.values())
        cached = {piece: self._cache.read(*piece.entry, piece.start, piece.stop) for piece in pieces}
        missing = [piece for piece, content in cached.items() if content is None]
        contents = {piece: content for piece, content in cached.items() if content is not None}
        blocks = {piece.block: piece.entry for piece in missing}  # requested as a whole, for the cache
        requested = [*blocks, *(wanted for wanted, pieces in pieces_of.items() if not pieces)]
        fetched = dict(zip(requested, self._request(requested), strict=True))
        for block, entry in blocks.items():
            self._cache.write(*entry, fetched[block])
        contents |= {piece: fetched[piece.block][piece.start : piece.stop] for piece in missing}
        contents_of = {wanted: b"".join(contents[piece] for piece in pieces) for wanted, pieces in pieces_of.items()}
        return [fetched.get(wanted, contents_of[wanted]) for wanted in ranges]

    def read_file(self, name: str, max_bytes: int) -> bytes:
        """Request the file until two responses are equal, because no sha256 of it is known."""
        responses: set[bytes] = set()
        for _ in range(_MAX_RESPONSES):
            content, _ = self._bucket.read(name, max_bytes)
            if content in responses:
                return content
            responses.add(content)
        raise DataError(f"{self.where(name)}: each response has other bytes; check the network and the server")

    def size(self, name: str) -> int:
        return self._bucket.size(name)

    def local_copy(self, file: StoredFile) -> Path:
        return self._cache.copy(self, file)

    def forget(self, ranges: Sequence[ByteRange]) -> None:
        for wanted in ranges:
            for piece in self._pieces(wanted):
                self._cache.drop(*piece.entry)

    def _pieces(self, wanted: ByteRange) -> Iterator[_Piece]:
        """Yield the parts of a range by block; nothing for a file that is not cached."""
        file = self._cached.get(wanted.name)
        if file is None:
            return
        for number in range(wanted.start // BLOCK_BYTES, -(-wanted.stop // BLOCK_BYTES)):
            first = number * BLOCK_BYTES
            yield _Piece(file, number, max(wanted.start - first, 0), min(wanted.stop - first, BLOCK_BYTES))

    def _request(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        check_not_forked(self.address)  # without the threads of the pool
        contents = [b""] * len(ranges)

        def request(numbers: list[int]) -> None:
            start = ranges[numbers[0]].start
            stop = max(ranges[number].stop for number in numbers)
            content = self._bucket.read_range(ranges[numbers[0]].name, start, stop)
            for number in numbers:
                contents[number] = content[ranges[number].start - start : ranges[number].stop - start]

        list(self._pool.map(request, _neighbours(ranges)))
        return contents


def open_remote(address: str, cache_bytes: int = 0) -> RemoteStore:
    """Return the files below an http(s)://, s3://, gs:// or az:// address.

    cache_bytes: limit of the disk cache; 0: only whole files are copied. Raises `DataError` for an address with a
    user, password or query, and without obstore.
    """
    if problem := secret_in_url(address):
        raise DataError(f"data.{problem}")
    address = address.rstrip("/")
    bucket = ObjectBucket(open_obstore(address, _TIMEOUT_S), address, _NUM_TRIES, "data.path")
    return RemoteStore(bucket, DiskCache(cache_bytes))


def _neighbours(ranges: Sequence[ByteRange]) -> list[list[int]]:
    """Return the numbers of ranges by request, each sorted by where the range starts."""
    groups: list[list[int]] = []
    first = stop = 0  # of the last group
    for number in sorted(range(len(ranges)), key=lambda number: (ranges[number].name, ranges[number].start)):
        wanted = ranges[number]
        is_near = bool(groups) and ranges[groups[-1][0]].name == wanted.name and wanted.start <= stop + _MAX_GAP_BYTES
        if is_near and max(stop, wanted.stop) - first <= _MAX_REQUEST_BYTES:
            groups[-1].append(number)
            stop = max(stop, wanted.stop)
        else:
            groups.append([number])
            first, stop = wanted.start, wanted.stop
    return groups
