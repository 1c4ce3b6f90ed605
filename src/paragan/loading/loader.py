"""Loader: an endless stream of batches from a data set to a device."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Source, paired
from paragan.core.types import Batch, Rows
from paragan.loading.order import Order

_LOOKAHEAD = 4096  # positions permuted at once: little slower than a hundred

Places = np.ndarray[tuple[int], np.dtype[np.int64]]


class Loader(Iterator[Batch]):
    """Endless global batches of `batch` images; a batch may span several epochs.

    Row r of batch number `position` is at place position * batch + r of the seeded order (`Order`), on every rank.
    share: (first, count) of the rows that this rank loads, all by default. flip: mirror each image with probability
    1/2, drawn per place; paired sources draw their own flips. `position` is the whole state. Images are copied to the
    device as uint8 and returned in [-1, 1] as `dtype`. `wait_s`: seconds spent loading so far.

    Raises `ConfigError` if the source is empty or the share is not within the batch.
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        seed: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        share: tuple[int, int] | None = None,
        flip: bool = False,
    ) -> None:
        self.position = 0
        self.wait_s = 0.0
        self.source = source
        self._batch = batch
        self._device = device
        self._dtype = dtype
        self._flip = flip
        self._share = share or (0, batch)
        _check(source, batch, self._share)
        self._order = Order(len(source), seed)
        self._pairs = paired(source)
        self._lookahead: tuple[int, Places] = (0, np.empty(0, dtype=np.int64))  # first place, and the rows from there
        self._pinned = _copies_from_pinned_memory(device)

    def __next__(self) -> Batch:
        return next_joint_batch([self])

    def _fetch(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return images, labels and conditions of the next batch."""
        places = _places(self._rows)
        rows = self._rows_at(places)
        if self._pairs is None:
            x_BCHW, y_B = self.source.fetch(rows)
            return _mirror(x_BCHW, _flip_draws(self._order.seed, places)) if self._flip else x_BCHW, y_B, None
        x_BCHW, condition = self._pairs.fetch_pairs(rows, places, self._order.seed)
        return x_BCHW, None, condition

    @property
    def _rows(self) -> Rows:
        return Rows(self.position, *self._share, self._batch)

    def _rows_at(self, places: Places) -> Places:
        """Return the rows at consecutive places, permuting many batches at once."""
        first, ahead = self._lookahead
        if not first <= places[0] <= places[-1] < first + len(ahead):
            first = int(places[0])
            four_epochs = 4 * len(self.source)  # each epoch has a constant cost, however short
            count = max(len(places), min(_LOOKAHEAD, four_epochs))
            self._lookahead = first, self._order.at(np.arange(first, first + count, dtype=np.int64))
        first, ahead = self._lookahead
        return ahead[places[0] - first : places[-1] - first + 1]

    def _to_device(self, tensor: Tensor) -> Tensor:
        if self._pinned:
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)


def next_joint_batch(loaders: Sequence[Loader]) -> Batch:
    """Return the next batches of several loaders, concatenated and copied to their common device in one transfer."""
    began = time.perf_counter()
    first = loaders[0]
    x_BCHW, y_B, condition = (
        _concatenate(values) for values in zip(*(loader._fetch() for loader in loaders), strict=True)
    )
    assert x_BCHW is not None
    batch = Batch(
        replace(first._rows, count=first._rows.count * len(loaders)),
        normalise(first._to_device(x_BCHW), first._dtype),
        None if y_B is None else first._to_device(y_B),
        None if condition is None else normalise(first._to_device(condition), first._dtype),
    )
    for loader in loaders:
        loader.position += 1
    first.wait_s += time.perf_counter() - began
    return batch


def _concatenate(values: Sequence[Tensor | None]) -> Tensor | None:
    tensors = [value for value in values if value is not None]
    return torch.cat(tensors) if len(tensors) > 1 else (tensors[0] if tensors else None)


def _mirror(x_BCHW: Tensor, which_B: Tensor) -> Tensor:
    return torch.where(which_B[:, None, None, None], x_BCHW.flip(3), x_BCHW)


def _flip_draws(seed: int, places: Places) -> Tensor:
    """Return whether to flip the image at each place, bool (B,): one bit of a key shared by 32 places."""
    keys, bits = np.divmod(places, 32)
    words = {number: rng.key(seed, "flip", number) for number in range(int(keys[0]), int(keys[-1]) + 1)}
    return torch.tensor([words[int(key)] >> int(bit) & 1 == 1 for key, bit in zip(keys, bits, strict=True)])


def normalise(x_BCHW: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Map uint8 values 0…255 to [-1, 1]."""
    return x_BCHW.to(dtype) / 127.5 - 1


def _places(rows: Rows) -> Places:
    first = rows.step * rows.total + rows.first
    return np.arange(first, first + rows.count, dtype=np.int64)


def _copies_from_pinned_memory(device: torch.device) -> bool:
    """Whether copies from pinned memory to this device can overlap with computation."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type == device.type


def _check(source: Source, batch: int, share: tuple[int, int]) -> None:
    first, count = share
    if not len(source):
        raise ConfigError("data: the data set is empty; at least one image is required")
    if first < 0 or count < 1 or first + count > batch:
        raise ConfigError(
            f"train.batch={batch} cannot be divided: rows {first} to {first + count} of this rank are not within the "
            "batch; use a larger batch or fewer ranks"
        )
