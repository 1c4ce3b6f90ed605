"""Batches in work, and the parts that threads make of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.loading.loader import Loader


class BatchInWork:
    """A batch whose parts are made in any order.

    parts: rows of those that have not started. num_left: of those that are not decoded. is_dropped: no longer wanted.
    """

    def __init__(self, loader: Loader, position: int, part_rows: int) -> None:
        self.rows, self.places = loader.rows_at(position)
        self.parts = deque(slice(first, first + part_rows) for first in range(0, len(self.rows), part_rows))
        self.num_left = len(self.parts)
        self.tensors: dict[str, Tensor] = {}
        self.error: BaseException | None = None
        self.is_dropped = False
        self._is_pinned = loader.is_pinned
        self._is_copied = self.num_left > 1 or loader.is_pinned
        self._lock = threading.Lock()

    def put(self, rows: slice, tensors: Mapping[str, Tensor]) -> None:
        """Copy decoded samples to their rows."""
        if not self._is_copied:
            self.tensors = dict(tensors)
            return
        with self._lock:
            if not self.tensors:
                self.tensors = {name: self._allocate(tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            copy_bytes(tensor, self.tensors[name][rows])

    def _allocate(self, part: Tensor) -> Tensor:
        return torch.empty((len(self.rows), *part.shape[1:]), dtype=part.dtype, pin_memory=self._is_pinned)


def copy_bytes(source: Tensor, target: Tensor) -> None:
    """Copy between contiguous tensors of one type and shape.

    `Tensor.copy_` would start a pool of native threads for each Python thread that calls it.
    """
    np.copyto(_as_bytes(target), _as_bytes(source))


def _as_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    flat: NDArray[np.uint8] = tensor.contiguous().view(-1).view(torch.uint8).numpy()
    return flat
