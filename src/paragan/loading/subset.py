"""Subset of a data set: some rows, or some classes."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paragan.core.source import DerivedSource, Source
from paragan.loading.order import Indices

_BLOCK_ROWS = 256


class SubsetSource(DerivedSource):
    """A `Source` of selected rows of another source, by position among them; labels are unchanged."""

    def __init__(self, source: Source, rows: Indices) -> None:
        super().__init__(source)
        self._rows = rows
        digest = hashlib.blake2b(rows.tobytes(), digest_size=8).hexdigest()
        self.fingerprint = f"{len(rows)} of {source.fingerprint} ({digest})"

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, rows: Any) -> Sequence[bytes]:
        return self.source.read(self._rows[np.asarray(rows)])

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        return self.source.decode(encoded, self._rows[np.asarray(rows)], places, seed)

    def where(self, row: int) -> str:
        return self.source.where(int(self._rows[row]))

    def stamp(self, row: int) -> str:
        return self.source.stamp(int(self._rows[row]))

    def row_labels(self) -> Indices | None:
        labels_N = super().row_labels()
        return None if labels_N is None else labels_N[self._rows]


class ClassSubset(SubsetSource):
    """The samples of some classes of a source that knows its labels, which are numbered from 0."""

    def __init__(self, source: Source, classes: Sequence[int]) -> None:
        self._numbers = np.full(len(source.class_names), -1)
        self._numbers[classes] = np.arange(len(classes))  # labels are not negative: `class_sizes` has counted them
        super().__init__(source, np.flatnonzero(self._numbers[read_labels(source)] >= 0))
        self.class_names = tuple(source.class_names[label] for label in classes)

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Return samples with the numbers of these classes."""
        tensors = super().decode(encoded, rows, places, seed)
        return {**tensors, "label": torch.from_numpy(self._numbers[tensors["label"].numpy()])}

    def row_labels(self) -> Indices | None:
        labels_N = super().row_labels()
        return None if labels_N is None else self._numbers[labels_N]


def read_labels(source: Source) -> Indices:
    """Return the label of every row, int64 (N,), read block by block where the source does not know them."""
    if (known_N := source.row_labels()) is not None:
        return known_N
    labels_N = np.empty(len(source), np.int64)
    for first in range(0, len(source), _BLOCK_ROWS):
        rows = np.arange(first, min(first + _BLOCK_ROWS, len(source)))
        labels_N[rows] = source.fetch(rows)["label"].numpy()
    return labels_N
