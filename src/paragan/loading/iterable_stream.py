"""Stream of batches from an iterable, without random access."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.not_finite import note_not_finite
from paragan.core.outside_code import reraise_outside_errors
from paragan.core.source import StreamedSource
from paragan.loading.loader import BatchStream, Share, batch_rows

_END = object()  # of an iterable


class IterableStream(BatchStream):
    """Endless global batches of consecutive samples; a batch may span two epochs.

    Every rank reads all samples, and stacks those of its share. A resumed run reads to its
    position, so the iterable must give equal samples for equal epochs.
    """

    def __init__(self, source: StreamedSource, batch: int, device: torch.device, share: Share) -> None:
        super().__init__(source, batch_rows(batch, share), device)
        self._streamed = source  # `self.source`, with its type
        self._restart()

    def _restart(self) -> None:
        self._at = 0  # position of the next batch
        self._samples = self._named_samples()

    def fetch_next(self) -> dict[str, Tensor]:
        if self._at > self.position:
            self._restart()
        rows: list[tuple[str, Any]] = []
        while self._at <= self.position:
            self._at += 1  # a resumed run skips those before
            rows = list(itertools.islice(self._samples, self.rows.total))
        rows = rows[self.rows.window]
        tensors = self._streamed.stacked([sample for _, sample in rows])
        note_not_finite(tensors, self.source, lambda row: rows[row][0])
        return tensors

    def _named_samples(self) -> Iterator[tuple[str, Any]]:
        """Yield samples for ever, with their names in messages."""
        for epoch in itertools.count():
            with reraise_outside_errors(f"data: epoch {epoch}", DataError):
                samples = self._streamed.samples(epoch)
            for number in itertools.count():
                name = f"sample {number} of epoch {epoch}"
                with reraise_outside_errors(f"data: {name}", DataError):
                    sample = next(samples, _END)
                if sample is _END:
                    break
                yield name, sample
            if number == 0:
                cure = "let the function return a new iterable for each epoch, with at least one sample"
                raise DataError(f"data: the iterable of epoch {epoch} has no samples; {cure}")
