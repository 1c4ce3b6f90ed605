"""Part of a data set for each of several cells (Toutouh et al. 2020, "Data dieting in GAN training")."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Source, notices
from paragan.loading.order import Indices, Order

_BLOCK_ROWS = 256


class SubsetSource:
    """A `Source` of some rows of another. Labels keep their numbers, whatever classes are left."""

    def __init__(self, source: Source, rows: Indices) -> None:
        self.source, self._rows = source, rows
        self.shape, self.class_names = source.shape, source.class_names
        self.notices = notices(source)
        digest = hashlib.blake2b(rows.tobytes(), digest_size=8).hexdigest()
        self.fingerprint = f"{len(rows)} of {source.fingerprint} ({digest})"

    def __len__(self) -> int:
        return len(self._rows)

    def fetch(self, indices: Any) -> tuple[Tensor, Tensor | None]:
        """By place in this part."""
        return self.source.fetch(self._rows[np.asarray(indices)])


def random_rows(num: int, share: float, seed: int, cell: int) -> Indices:
    """A share of `num` rows for this cell alone, sorted; another cell may have the same."""
    return _rows(num, rng.key(seed, "diet", cell), 0, _count(num, share))


def disjoint_rows(num: int, shares: Sequence[float], seed: int, cell: int) -> Indices:
    """The same of rows that no other cell has: those of cell 0, of cell 1, … follow one another in one order.

    shares: of all cells. `ConfigError` where there are too few rows for so many.
    """
    counts = [_count(num, share) for share in shares]
    if sum(counts) > num:
        raise ConfigError(f"grid.overlap: found {num} images, expected at least one for each of {len(shares)} cells")
    return _rows(num, rng.key(seed, "diet"), sum(counts[:cell]), counts[cell])


def read_labels(source: Source) -> Indices:
    """Of every row, int64 (N,). Reads the whole set, block by block."""
    found = np.empty(len(source), np.int64)
    for first in range(0, len(source), _BLOCK_ROWS):
        rows = np.arange(first, min(first + _BLOCK_ROWS, len(source)))
        _, y_B = source.fetch(rows)
        assert y_B is not None
        found[rows] = y_B.numpy()
    return found


def _count(num: int, share: float) -> int:
    return max(1, int(num * share))


def _rows(num: int, key: int, first: int, count: int) -> Indices:
    return np.sort(Order(num, key).at(np.arange(first, first + count)))
