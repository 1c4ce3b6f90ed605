"""The stream of batches without the images: which rows each has, for ranks that need no more."""

from __future__ import annotations

from collections.abc import Iterator

from paragan.core.protocols import Source
from paragan.core.types import Batch, Rows


class BatchRows(Iterator[Batch]):
    """As `Loader`: batch number `position`, the rows of `share`, (first, count). Reads nothing of the source."""

    wait_s = 0.0

    def __init__(self, source: Source, batch: int, share: tuple[int, int]) -> None:
        self.position = 0
        self.source, self._batch, self._share = source, batch, share

    def __next__(self) -> Batch:
        rows = Rows(self.position, *self._share, self._batch)
        self.position += 1
        return Batch(rows)
