"""Part of a data set for each of several cells (Toutouh et al. 2020, "Data dieting in GAN training")."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from paragan.core import rng
from paragan.core.seams import Source
from paragan.loading.order import Order


class Diet:
    """A `Source` of some rows of another. share: of its images. part, of: which piece, where none may overlap; None:
    drawn for this `cell` alone.
    """

    def __init__(self, source: Source, share: float, seed: int, cell: int, of: int | None = None) -> None:
        num = max(1, int(len(source) * share))
        first, key = (0, rng.key(seed, "diet", cell)) if of is None else (cell * num, rng.key(seed, "diet"))
        self.source = source
        self._rows = np.sort(Order(len(source), key).at(np.arange(first, first + num)))
        self.shape, self.class_names = source.shape, source.class_names
        self.fingerprint = f"{num} of {source.fingerprint} ({key}, {first})"

    def __len__(self) -> int:
        return len(self._rows)

    def fetch(self, indices: Any) -> tuple[Tensor, Tensor | None]:
        """By place in this part."""
        return self.source.fetch(self._rows[np.asarray(indices)])
