"""Remote files in blocks, which are cached on the local disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from paragan.storage.byte_store import ByteRange, ByteStore, StoredFile
from paragan.storage.disk_cache import DiskCache

BLOCK_BYTES = 256 << 10


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


class BlockStore(ByteStore):
    """Files of another store, of which the first that fit into the cache are cached.

    files: of the store, with their sha256, by which their blocks are found in the cache. Blocks are
    not compared with a hash; a reader that finds wrong bytes calls `forget` and reads again.
    """

    def __init__(self, store: ByteStore, cache: DiskCache, files: Sequence[StoredFile]) -> None:
        self.address = store.address
        self.num_attempts = store.num_attempts + 1
        self._store = store
        self._cache = cache
        self._cached = {file.name: file for file in _first_within(files, cache.capacity_bytes)}

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        pieces = [list(self._pieces(wanted)) for wanted in ranges]
        found = {piece: self._cache.read(*piece.entry, piece.start, piece.stop) for piece in chain(*pieces)}
        blocks = {piece.block: piece.entry for piece, content in found.items() if content is None}
        direct = [wanted for wanted, parts in zip(ranges, pieces, strict=True) if not parts]
        missing = [*blocks, *direct]
        fetched = dict(zip(missing, self._store.read_ranges(missing) if missing else [], strict=True))
        for block, entry in blocks.items():
            self._cache.write(*entry, fetched[block])
        for piece, content in found.items():
            if content is None:
                found[piece] = fetched[piece.block][piece.start : piece.stop]
        return [
            b"".join(found[piece] or b"" for piece in parts) if parts else fetched[wanted]
            for wanted, parts in zip(ranges, pieces, strict=True)
        ]

    def read_file(self, name: str, max_bytes: int) -> bytes:
        return self._store.read_file(name, max_bytes)

    def size(self, name: str) -> int:
        return self._store.size(name)

    def local_copy(self, file: StoredFile) -> Path:
        return self._store.local_copy(file)

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


def _first_within(files: Sequence[StoredFile], capacity_bytes: int) -> Iterator[StoredFile]:
    """Yield the first files that fit into the cache together."""
    for file in files:
        capacity_bytes -= file.num_bytes
        if capacity_bytes < 0:
            return
        yield file
