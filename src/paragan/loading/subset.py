"""Subset of a data set for each of several cells.

Source: J. Toutouh et al., "Data dieting in GAN training", 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from paragan.core import rng
from paragan.core.source import DerivedSource, Source
from paragan.loading.order import Indices, Order

_BLOCK_ROWS = 256


class SubsetSource(DerivedSource):
    """A `Source` of selected rows of another source; labels are not renumbered."""

    def __init__(self, source: Source, rows: Indices) -> None:
        super().__init__(source)
        self._rows = rows
        digest = hashlib.blake2b(rows.tobytes(), digest_size=8).hexdigest()
        self.fingerprint = f"{len(rows)} of {source.fingerprint} ({digest})"

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, rows: Any) -> Sequence[bytes]:
        """Return what the source reads of these positions in the subset."""
        return self.source.read(self._rows[np.asarray(rows)])

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Return samples by position in the subset."""
        return self.source.decode(encoded, self._rows[np.asarray(rows)], places, seed)

    def where(self, row: int) -> str:
        """Return the name of a sample by position in the subset."""
        return self.source.where(int(self._rows[row]))


def random_rows(num: int, share: float, seed: int, cell: int) -> Indices:
    """Draw a sorted random share of `num` rows, at least one, for one cell; the rows of cells may overlap."""
    count = max(1, int(num * share))
    return np.sort(Order(num, rng.key(seed, "diet", cell)).at(np.arange(count)))


def read_labels(source: Source) -> Indices:
    """Read the label of every row of the whole data set, int64 (N,), block by block."""
    labels_N = np.empty(len(source), np.int64)
    for first in range(0, len(source), _BLOCK_ROWS):
        rows = np.arange(first, min(first + _BLOCK_ROWS, len(source)))
        labels_N[rows] = source.fetch(rows)["label"].numpy()
    return labels_N
