"""Endless streams of batches from a data set to a device."""

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.not_finite import note_not_finite
from paragan.core.phases import Phase, phase
from paragan.core.source import Source
from paragan.core.types import Batch, Rows
from paragan.loading.normalise import normalise_images
from paragan.loading.order import ClassOrder, Order

_LOOKAHEAD = 4096  # positions permuted at once: little slower than a hundred


Places = np.ndarray[tuple[int], np.dtype[np.int64]]
Share = tuple[int, int] | None  # first row of a rank in the global batch, and number of its rows; None: all


class BatchStream(Iterator[Batch]):
    """Base class of endless streams of batches, moved to a device.

    position: the whole state. wait_s: seconds that the consumer has waited. timeout_s: limit of reading a
    batch in this process. rows: those of this rank in batch 0. is_pinned: whether copies to the device start
    from pinned memory, which lets them overlap with computation. Images, as the source declares them, are
    copied to the device as stored and mapped to [-1, 1] as `dtype` there; other tensors are unchanged.
    """

    def __init__(
        self, source: Source, rows: Rows, device: torch.device | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        self.position = 0
        self.wait_s = 0.0
        self.source = source
        self.rows = rows
        self.device = device or torch.device("cpu")
        self.dtype = dtype
        self.is_pinned = _copies_from_pinned_memory(self.device)
        self.timeout_s: float | None = None

    def __next__(self) -> Batch:
        return next_joint_batch([self])

    @abstractmethod
    def fetch_next(self) -> dict[str, Tensor]:
        """Return the host tensors of the batch at `position`, which does not change."""

    def to_batch(self, tensors: Mapping[str, Tensor], num_streams: int = 1) -> Batch:
        """Move host tensors of the batch at `position` to the device.

        num_streams: number of streams whose rows are concatenated.
        """
        rows = replace(self.rows, step=self.position, count=self.rows.count * num_streams)
        moved = {name: self._to_device(tensor) for name, tensor in tensors.items()}
        return Batch(rows, normalise_images(moved, self.source, self.dtype))

    def loading_values(self, with_newest: bool) -> list[dict[str, Any]]:
        """Return decisions of the controller, as values of events; empty without one."""
        return []

    def close(self) -> None:
        """End threads, if any."""

    def _to_device(self, tensor: Tensor) -> Tensor:
        if self.is_pinned and tensor.device != self.device and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


class BatchRows(BatchStream):
    """Endless batches of rows without tensors, as in `Loader`, for ranks that only need the row numbers."""

    def __init__(self, source: Source, batch: int, share: Share) -> None:
        super().__init__(source, batch_rows(batch, share))

    def fetch_next(self) -> dict[str, Tensor]:
        return {}


class Loader(BatchStream):
    """Endless global batches of `batch` samples; a batch may span several epochs.

    Row r of batch number `position` is at place position * batch + r of the seeded order (`Order`),
    on every rank. share: the rows that this rank loads, all by default. flip: mirror each sample's
    images with probability 1/2, drawn per place; sources of pairs draw flips themselves. balanced_by:
    labels of all samples; each comes equally often (`ClassOrder`).

    Raises `ConfigError` if the source is empty, the share is not within the batch, there is no
    `image` to flip, or a sample differs from its declaration, and `DataError` for one with NaN or
    infinity, unless `source.not_finite` notes them.
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        seed: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        share: Share = None,
        flip: bool = False,
        *,
        balanced_by: Places | None = None,
    ) -> None:
        super().__init__(source, batch_rows(batch, share), device, dtype)
        _check(source, self.rows)
        flip = flip and not source.has_pairs
        self._flipped = [name for name, spec in source.tensors.items() if spec.is_image and flip]
        if flip and not self._flipped:
            raise ConfigError("data.flip=true mirrors images, but the data set has none; use data.flip=false")
        self.seed = seed
        self._order = Order(len(source), seed) if balanced_by is None else ClassOrder(balanced_by, seed)
        # first place, and the rows from there
        self._lookahead: tuple[int, Places] = (0, np.empty(0, dtype=np.int64))

    def fetch_next(self) -> dict[str, Tensor]:
        return self.fetch(self.position)

    def fetch(self, position: int) -> dict[str, Tensor]:
        """Return the host tensors of a batch, which depend on the position only; thread-safe."""
        rows, places = self.rows_at(position)
        return self.decode(self.source.read(rows), rows, places)

    def rows_at(self, position: int) -> tuple[Places, Places]:
        """Return the rows of this rank in a batch, and their places in the endless stream."""
        first = position * self.rows.total + self.rows.first
        places = np.arange(first, first + self.rows.count, dtype=np.int64)
        return self._permuted(places), places

    def decode(self, encoded: Sequence[bytes], rows: Places, places: Places) -> dict[str, Tensor]:
        """Decode and flip any samples of the stream; thread-safe."""
        return self.checked(self.source.decode(encoded, rows, places, self.seed), rows, places)

    def checked(self, decoded: Mapping[str, Tensor], rows: Places, places: Places) -> dict[str, Tensor]:
        """Check and flip decoded samples."""
        tensors = dict(decoded)
        _check_declared(tensors, self.source, len(places))
        note_not_finite(tensors, self.source, lambda row: self.source.where(int(rows[row])))
        draws = _flip_draws(self.seed, places) if self._flipped else []
        for name in self._flipped:
            _flip_in_place(tensors[name], draws)
        return tensors

    def _permuted(self, places: Places) -> Places:
        """Return the rows at consecutive places, permuting many batches at once."""
        first, ahead = self._lookahead  # read and replaced as a whole: threads share it
        if not first <= places[0] <= places[-1] < first + len(ahead):
            first = int(places[0])
            four_epochs = 4 * len(self.source)  # each epoch has a constant cost, however short
            count = max(len(places), min(_LOOKAHEAD, four_epochs))
            ahead = self._order.at(np.arange(first, first + count, dtype=np.int64))
            self._lookahead = first, ahead
        return ahead[places[0] - first : places[-1] - first + 1]


@phase(Phase.DATA)
def next_joint_batch(streams: Sequence[BatchStream]) -> Batch:
    """Return the next batches of several streams, concatenated, in one transfer to their device."""
    began = time.perf_counter()
    first = streams[0]
    problem = f"data: batch {first.position} was not read within {first.timeout_s} s; increase train.timeout_s"
    with _limited(first.timeout_s, problem):
        fetched = [stream.fetch_next() for stream in streams]
    tensors = fetched[0]
    if len(fetched) > 1:
        tensors = {name: torch.cat([part[name] for part in fetched]) for name in tensors}
    batch = first.to_batch(tensors, len(streams))
    for stream in streams:
        stream.position += 1
    first.wait_s += time.perf_counter() - began
    return batch


def _limited(timeout_s: float | None, problem: str) -> AbstractContextManager[None]:
    if timeout_s is None:  # in memory, or read by threads or processes with a limit of their own
        return nullcontext()
    from paragan.loading.time_limit import time_limit

    return time_limit(timeout_s, problem)


def _flip_draws(seed: int, places: Places) -> list[bool]:
    """Return whether to flip the image at each place; 32 places share one key."""
    keys, bits = np.divmod(places, 32)
    words = {number: rng.key(seed, "flip", number) for number in range(int(keys[0]), int(keys[-1]) + 1)}
    return [words[key] >> bit & 1 == 1 for key, bit in zip(keys.tolist(), bits.tolist(), strict=True)]


def _flip_in_place(x_BCHW: Tensor, is_flipped: list[bool]) -> None:
    """Mirror some images; one at a time, which needs no memory that the processor has not touched."""
    x_BCHW = x_BCHW.view(torch.int16) if x_BCHW.dtype == torch.uint16 else x_BCHW  # torch does not flip uint16
    for x_CHW, flip in zip(x_BCHW, is_flipped, strict=True):
        if flip:
            for x_HW in x_CHW:  # a larger copy could start native threads for each thread that decodes
                x_HW.copy_(x_HW.flip(1))


def _copies_from_pinned_memory(device: torch.device) -> bool:
    """Return whether copies from pinned memory to this device can overlap with computation."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type == device.type


def batch_rows(batch: int, share: Share = None) -> Rows:
    """Return the rows of a share of batch 0."""
    first, count = share or (0, batch)
    return Rows(step=0, first=first, count=count, total=batch)


def _check_declared(tensors: Mapping[str, Tensor], source: Source, count: int) -> None:
    """Raise `ConfigError` if fetched tensors are not those that the source declares."""
    fits = tensors.keys() == source.tensors.keys() and all(
        len(tensors[name]) == count and spec.fits(tuple(tensors[name].shape[1:]), tensors[name].dtype)
        for name, spec in source.tensors.items()
    )
    if not fits:
        actual = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
        declared = {name: ((count, *spec.shape), spec.dtype) for name, spec in source.tensors.items()}
        raise ConfigError(
            f"data: {type(source).__name__}.fetch returned {actual}, but its `tensors` declare "
            f"{declared}; make both equal"
        )


def _check(source: Source, rows: Rows) -> None:
    if not len(source):
        raise ConfigError("data: the data set is empty; at least one image is required")
    if rows.first < 0 or rows.count < 1 or rows.first + rows.count > rows.total:
        raise ConfigError(
            f"train.batch={rows.total} cannot be divided: rows {rows.first} to {rows.first + rows.count} of this rank "
            "are not within the batch; use a larger batch or fewer ranks"
        )
