"""Remote files in blocks, which are cached on the local disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paragan.storage.byte_store import ByteRange, ByteStore, StoredFile
from paragan.storage.disk_cache import DiskCache

BLOCK_BYTES = 256 << 10
_WAIT_S = 60.0  # for a block that another thread fetches


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


_Key = _Piece | ByteRange  # of bytes that were read: of a block, or of a file that is not cached


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
        self._lock = threading.Lock()
        self._in_flight: dict[ByteRange, threading.Event] = {}

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        parts: list[list[_Key]] = []  # of each range
        found: dict[_Key, bytes] = {}
        missing: dict[ByteRange, list[_Piece]] = {}  # by block
        direct: list[ByteRange] = []
        for wanted in ranges:
            pieces = list(self._pieces(wanted))
            if not pieces:
                direct.append(wanted)
            parts.append([*pieces] or [wanted])
            for piece in pieces:
                if not self._find(piece, found):
                    missing.setdefault(piece.block, []).append(piece)
        if missing or direct:
            self._fetch(missing, direct, found)
        return [b"".join([found[key] for key in keys]) for keys in parts]

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

    def _find(self, piece: _Piece, found: dict[_Key, bytes]) -> bool:
        """Read a piece from the cache."""
        content = self._cache.read(*piece.entry, piece.start, piece.stop)
        if content is not None:
            found[piece] = content
        return content is not None

    def _fetch(
        self,
        missing: dict[ByteRange, list[_Piece]],
        direct: list[ByteRange],
        found: dict[_Key, bytes],
    ) -> None:
        """Read blocks and ranges; blocks that another thread fetches are awaited."""
        with self._lock:
            others = {block: self._in_flight[block] for block in missing if block in self._in_flight}
            claimed = [block for block in missing if block not in others]
            self._in_flight.update({block: threading.Event() for block in claimed})
        try:
            self._fetch_all(claimed, direct, missing, found)
        finally:
            with self._lock:
                events = [self._in_flight.pop(block) for block in claimed]
            for event in events:
                event.set()
        for event in others.values():
            event.wait(_WAIT_S)
        absent = [block for block in others if not all(self._find(piece, found) for piece in missing[block])]
        self._fetch_all(absent, [], missing, found)

    def _fetch_all(
        self,
        blocks: list[ByteRange],
        direct: list[ByteRange],
        missing: dict[ByteRange, list[_Piece]],
        found: dict[_Key, bytes],
    ) -> None:
        contents = self._store.read_ranges([*blocks, *direct])
        for block, content in zip(blocks, contents, strict=False):
            self._cache.write(*missing[block][0].entry, content)
            for piece in missing[block]:
                found[piece] = content[piece.start : piece.stop]
        found.update(zip(direct, contents[len(blocks) :], strict=True))


def _first_within(files: Sequence[StoredFile], capacity_bytes: int) -> Iterator[StoredFile]:
    """Yield the first files that fit into the cache together."""
    for file in files:
        capacity_bytes -= file.num_bytes
        if capacity_bytes < 0:
            return
        yield file
