"""Stream of batches without samples, for ranks that only need the row numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paragan.core.source import Source
from paragan.core.types import Batch, Rows


class BatchRows(Iterator[Batch]):
    """Endless batches of rows without tensors, numbered by `position` as in `Loader`.

    share: (first, count) of the rows of the global batch of `batch` images.
    """

    wait_s = 0.0

    def __init__(self, source: Source, batch: int, share: tuple[int, int]) -> None:
        self.position = 0
        self.source = source
        self._batch = batch
        self._share = share

    def loading_values(self, with_newest: bool) -> list[dict[str, Any]]:
        """Return nothing, because a stream of rows reads nothing."""
        return []

    def close(self) -> None:
        """Do nothing, because a stream of rows has no threads."""

    def __next__(self) -> Batch:
        rows = Rows(self.position, *self._share, self._batch)
        self.position += 1
        return Batch(rows)
