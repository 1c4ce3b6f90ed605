"""Parts of a batch: what one thread reads and one thread decodes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.source import Source
from paragan.loading.loader import Loader, Places


class Part:
    """Consecutive rows of a batch. num_bytes: what is counted for it, in addition to its batch."""

    def __init__(self, batch: BatchInWork, first: int, stop: int, num_bytes: int) -> None:
        self.batch = batch
        self.rows: Places = batch.rows[first:stop]
        self.places: Places = batch.places[first:stop]
        self.encoded: Sequence[bytes] | None = None
        self.num_bytes = num_bytes
        self._first = first

    def __lt__(self, other: Part) -> bool:
        return (self.batch.position, self._first) < (other.batch.position, other._first)

    def set_encoded(self, encoded: Sequence[bytes]) -> int:
        """Store what was read; return by how much the bytes differ from the estimate."""
        self.encoded = encoded
        actual = sum(map(len, encoded)) + self.batch.copied_bytes(len(encoded))
        difference = actual - self.num_bytes
        self.num_bytes = actual
        return difference

    def decode_into_batch(self) -> None:
        """Decode the samples and copy them to the batch."""
        encoded = self.encoded
        assert encoded is not None
        self.encoded = None
        self.batch.put(self._first, self.batch.loader.decode(encoded, self.rows, self.places))


class BatchInWork:
    """A batch whose parts are read and decoded in any order.

    num_left: parts that are not decoded yet. is_dropped: no longer wanted.
    """

    def __init__(self, loader: Loader, position: int, max_parts: int) -> None:
        self.loader = loader
        self.position = position
        self.rows, self.places = loader.rows_at(position)
        self._part_rows = -(-len(self.rows) // max_parts)
        self._next_row = 0
        self.num_left = -(-len(self.rows) // self._part_rows)
        self._is_copied = self.num_left > 1 or loader.is_pinned
        self._sample_bytes = sample_bytes(loader.source)
        self.num_bytes = len(self.rows) * self._sample_bytes
        self.tensors: dict[str, Tensor] = {}
        self.error: BaseException | None = None
        self.is_dropped = False
        self._lock = threading.Lock()

    @property
    def has_parts(self) -> bool:
        """Whether some parts have not started."""
        return self._next_row < len(self.rows)

    def next_part_bytes(self, encoded_bytes: int) -> int:
        """Return the bytes of the next part, if a sample has so many encoded bytes."""
        count = min(self._part_rows, len(self.rows) - self._next_row)
        return count * encoded_bytes + self.copied_bytes(count)

    def copied_bytes(self, count: int) -> int:
        """Return the bytes of decoded samples that exist twice while they are copied."""
        return count * self._sample_bytes if self._is_copied else 0

    def start_part(self, encoded_bytes: int) -> Part:
        """Return the next part."""
        num_bytes = self.next_part_bytes(encoded_bytes)
        first = self._next_row
        self._next_row = min(first + self._part_rows, len(self.rows))
        return Part(self, first, self._next_row, num_bytes)

    def put(self, first: int, tensors: Mapping[str, Tensor]) -> None:
        """Copy decoded samples to their rows."""
        if not self._is_copied:
            self.tensors = dict(tensors)
            return
        with self._lock:
            if not self.tensors:
                self.tensors = {name: self._allocate(tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            copy_bytes(tensor, self.tensors[name][first : first + len(tensor)])

    def _allocate(self, part: Tensor) -> Tensor:
        shape = (len(self.rows), *part.shape[1:])
        return torch.empty(shape, dtype=part.dtype, pin_memory=self.loader.is_pinned)


def copy_bytes(source: Tensor, target: Tensor) -> None:
    """Copy between contiguous tensors of one type and shape.

    `Tensor.copy_` would start a pool of native threads for each Python thread that calls it.
    """
    np.copyto(_as_bytes(target), _as_bytes(source))


def _as_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    flat: NDArray[np.uint8] = tensor.contiguous().view(-1).view(torch.uint8).numpy()
    return flat


def sample_bytes(source: Source) -> int:
    """Return the bytes of the tensors of one sample."""
    return sum(spec.num_bytes for spec in source.tensors.values())
