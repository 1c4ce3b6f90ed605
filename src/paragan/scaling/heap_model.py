"""Resident memory of a process that allocates and frees blocks with glibc's malloc.

Blocks from `threshold` on are mapped and return to the system when freed; freeing one raises the
threshold to its size, up to 32 MiB. Smaller blocks are cut from the heap: from the smallest free
block that is large enough, else from the end (mallopt(3), M_MMAP_THRESHOLD). The heap does not
shrink: there is always a small block in use at its end, such as an object of Python.
"""

from __future__ import annotations

from bisect import bisect_left, insort

_MAPPED_FROM = 128 << 10
_MOST_MAPPED_FROM = 32 << 20
_ALIGNMENT = 64  # torch's, and a header


class HeapModel:
    """Resident bytes after each `allocate` and `release`. Numbers identify blocks.

    mapped_from: fixed threshold; None: it follows the blocks.
    """

    def __init__(self, mapped_from: int | None = None) -> None:
        self.threshold = mapped_from or _MAPPED_FROM
        self._is_fixed = mapped_from is not None
        self._mapped_bytes = 0
        self._end = 0
        self._blocks: dict[int, tuple[int | None, int]] = {}  # number -> (start; None: mapped, size)
        self._free: list[tuple[int, int]] = []  # (size, start), the smallest first
        self._starts: dict[int, int] = {}  # of free blocks: start -> size
        self._ends: dict[int, int] = {}  # of free blocks: end -> start

    @property
    def resident_bytes(self) -> int:
        """Heap and mapped blocks."""
        return self._end + self._mapped_bytes

    def allocate(self, number: int, size: int) -> None:
        """Place a block."""
        size = -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT
        if size >= self.threshold:
            self._mapped_bytes += size
            self._blocks[number] = (None, size)
            return
        place = bisect_left(self._free, (size, 0))
        if place < len(self._free):
            found, start = self._free[place]
            self._take(start, found)
            if found > size:
                self._put(start + size, found - size)
        else:
            start = self._end
            self._end += size
        self._blocks[number] = (start, size)

    def release(self, number: int) -> None:
        """Free a block; neighbours that are free join it."""
        start, size = self._blocks.pop(number)
        if start is None:
            self._mapped_bytes -= size
            if not self._is_fixed:
                self.threshold = max(self.threshold, min(size, _MOST_MAPPED_FROM))
            return
        if start + size in self._starts:
            after = self._starts[start + size]
            self._take(start + size, after)
            size += after
        if start in self._ends:
            before = self._ends[start]
            length = self._starts[before]
            self._take(before, length)
            start = before
            size += length
        self._put(start, size)

    def _put(self, start: int, size: int) -> None:
        insort(self._free, (size, start))
        self._starts[start] = size
        self._ends[start + size] = start

    def _take(self, start: int, size: int) -> None:
        self._free.pop(bisect_left(self._free, (size, start)))
        del self._starts[start]
        del self._ends[start + size]
