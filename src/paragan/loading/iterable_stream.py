"""Batches in the order of an iterable."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.not_finite import check_finite
from paragan.core.source import StreamedSource
from paragan.core.types import Batch, Rows
from paragan.loading.loader import BatchStream, normalise_images


class IterableStream(BatchStream):
    """Endless global batches of consecutive samples; a batch may span two epochs.

    Every rank reads all samples, and stacks those of its share. A resumed run reads to its
    position, so the iterable must give equal samples for equal epochs.
    """

    def __init__(self, source: StreamedSource, batch: int, device: torch.device, share: tuple[int, int]) -> None:
        super().__init__(source)
        self._streamed = source
        self._batch = batch
        self._device = device
        self._share = share
        self._restart()

    def _restart(self) -> None:
        self._at = 0  # position of the next sample, in batches
        self._epoch = 0
        self._samples = enumerate(self._streamed.samples(0))

    def fetch_next(self) -> dict[str, Tensor]:
        if self._at > self.position:
            self._restart()
        while self._at < self.position:
            self._read()
        first, count = self._share
        rows = self._read()[first : first + count]
        tensors = self._streamed.stacked([sample for _, sample in rows])
        check_finite(tensors, self.source, lambda row: rows[row][0])
        return tensors

    def _read(self) -> list[tuple[str, Any]]:
        """Return the samples of a batch with their names in messages."""
        self._at += 1
        return [self._next_sample() for _ in range(self._batch)]

    def _next_sample(self) -> tuple[str, Any]:
        for number, sample in self._samples:
            return f"sample {number} of epoch {self._epoch}", sample
        self._epoch += 1
        self._samples = enumerate(self._streamed.samples(self._epoch))
        for _, sample in self._samples:
            return f"sample 0 of epoch {self._epoch}", sample
        raise DataError(f"data: the iterable of epoch {self._epoch} has no samples")

    def to_batch(self, tensors: dict[str, Tensor], position: int, num_streams: int = 1) -> Batch:
        first, count = self._share
        moved = {name: tensor.to(self._device) for name, tensor in tensors.items()}
        rows = Rows(step=position, first=first, count=count * num_streams, total=self._batch)
        return Batch(rows, normalise_images(moved, self.source))
