"""From a data set to an endless stream of batches on a device."""

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

_LOOKAHEAD = 4096  # places: so many cost little more than a hundred

Places = np.ndarray[tuple[int], np.dtype[np.int64]]


class Loader(Iterator[Batch]):
    """Endless global batches of `batch` images; epochs follow one another without a seam, so a batch may span several.

    Row r of batch number `position` is place position * batch + r of the seeded order (`Order`), whoever loads it:
    `share`, (first, count), says which rows are loaded here, all by default. flip: a fair coin for each place says
    whether its image is mirrored; pairs draw for themselves. `position` is the whole state. Images
    arrive in [-1, 1] as `dtype`; they travel to the device as uint8. `wait_s`: seconds spent here so far.

    Raises `ConfigError` where the source is empty or the share does not lie in the batch.
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
        self.source, self._batch, self._device, self._dtype = source, batch, device, dtype
        self._flip = flip
        self._share = share or (0, batch)
        _check(source, batch, self._share)
        self._order, self._pairs = Order(len(source), seed), paired(source)
        self._ahead: tuple[int, Places] = (0, np.empty(0, dtype=np.int64))  # a place, and the rows from there on
        self._pinned = _copies_from_pinned_memory(device)

    def __next__(self) -> Batch:
        return next_joint_batch([self])

    def _fetched(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Images, labels, conditions of the next batch."""
        places = _places(self._rows)
        rows = self._visited(places)
        if self._pairs is None:
            x_BCHW, y_B = self.source.fetch(rows)
            return _mirror(x_BCHW, _flip_draws(self._order.seed, places)) if self._flip else x_BCHW, y_B, None
        x_BCHW, condition = self._pairs.fetch_pairs(rows, places, self._order.seed)
        return x_BCHW, None, condition

    @property
    def _rows(self) -> Rows:
        return Rows(self.position, *self._share, self._batch)

    def _visited(self, places: Places) -> Places:
        """The rows at these places, which are one after another. Looked up for many batches in one go."""
        first, ahead = self._ahead
        if not first <= places[0] <= places[-1] < first + len(ahead):
            first, few = int(places[0]), 4 * len(self.source)  # every epoch costs as much, however short
            count = max(len(places), min(_LOOKAHEAD, few))
            self._ahead = first, self._order.at(np.arange(first, first + count, dtype=np.int64))
        first, ahead = self._ahead
        return ahead[places[0] - first : places[-1] - first + 1]

    def _to_device(self, tensor: Tensor) -> Tensor:
        if self._pinned:
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)


def next_joint_batch(loaders: Sequence[Loader]) -> Batch:
    """The next batch of each, of as many rows and for one device, behind one another: they travel as one."""
    began, first = time.perf_counter(), loaders[0]
    x_BCHW, y_B, condition = (_concatenate(values) for values in zip(*(one._fetched() for one in loaders), strict=True))
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
    there = [value for value in values if value is not None]
    return torch.cat(there) if len(there) > 1 else (there[0] if there else None)


def _mirror(x_BCHW: Tensor, which_B: Tensor) -> Tensor:
    return torch.where(which_B[:, None, None, None], x_BCHW.flip(3), x_BCHW)


def _flip_draws(seed: int, places: Places) -> Tensor:
    """One for each place, bool (B,): a bit of the key that 32 places have together."""
    keys, bits = np.divmod(places, 32)
    drawn = {number: rng.key(seed, "flip", number) for number in range(int(keys[0]), int(keys[-1]) + 1)}
    return torch.tensor([drawn[int(key)] >> int(bit) & 1 == 1 for key, bit in zip(keys, bits, strict=True)])


def normalise(x_BCHW: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 grey levels 0…255 as numbers in [-1, 1]."""
    return x_BCHW.to(dtype) / 127.5 - 1


def _places(rows: Rows) -> Places:
    first = rows.step * rows.total + rows.first
    return np.arange(first, first + rows.count, dtype=np.int64)


def _copies_from_pinned_memory(device: torch.device) -> bool:
    """Whether copies to this device overlap with computation if they start in page-locked memory."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type == device.type


def _check(source: Source, batch: int, share: tuple[int, int]) -> None:
    first, count = share
    if not len(source):
        raise ConfigError("data: found an empty data set, expected at least one image")
    if first < 0 or count < 1 or first + count > batch:
        raise ConfigError(
            f"train.batch: found rows {first} to {first + count} for this rank, "
            f"expected at least one within 0 to {batch}"
        )
