"""Buffer of generated images for D: the newest first, with a share of older ones.

ParaGAN buffers fakes so that D need not wait for G; a pool of past images also prevents D from
forgetting them (Shrivastava et al. 2017, section 2.3). Images that are too old are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.option_types import Count, Fraction, Natural


@dataclass(frozen=True)
class BufferOptions:
    """Size and sampling of the buffer.

    capacity: most images of a rank. max_age: updates of G between an image and the newest, beyond
    which it is dropped. cached: share of a batch that is drawn at random from older images.
    balance: draw these with equal numbers of every class.
    """

    capacity: Count = 4096
    max_age: Natural = 8
    cached: Fraction = 0.0
    balance: bool = True


@dataclass(frozen=True)
class DrawnFakes:
    """Images for one batch with their labels, on the host, and the version of G of each."""

    images: Tensor
    y_B: Tensor | None
    versions: tuple[int, ...]


class Buffer:
    """Buffered images of one rank, by delivery; draws depend only on seed and batch number."""

    def __init__(self, options: BufferOptions, seed: int) -> None:
        self.options = options
        self.seed = seed
        self._deliveries: list[DrawnFakes] = []  # by version, ascending
        self._num_used = 0  # of the newest delivery

    @property
    def newest(self) -> int | None:
        """Version of the newest images; None if the buffer is empty."""
        return self._deliveries[-1].versions[0] if self._deliveries else None

    def __len__(self) -> int:
        return sum(len(delivery.images) for delivery in self._deliveries)

    def put(self, images: Tensor, y_B: Tensor | None, version: int) -> None:
        """Add images of one version, not older than those in the buffer. y_B: on the host."""
        assert self.newest is None or version >= self.newest, "deliveries come in order"
        self._deliveries.append(DrawnFakes(images, y_B, (version,) * len(images)))
        self._num_used = 0
        oldest = version - self.options.max_age
        self._deliveries = [one for one in self._deliveries if one.versions[0] >= oldest]
        while len(self) > self.options.capacity and len(self._deliveries) > 1:
            del self._deliveries[0]

    def draw(self, count: int, step: int) -> DrawnFakes:
        """Return `count` images for D's batch number `step`.

        Older ones, if any, are the share `cached`; new ones continue the last draw, and repeat.
        """
        assert self._deliveries, "nothing has been delivered"
        *older, newest = self._deliveries
        num_cached = round(count * self.options.cached) if older else 0
        fresh = [(self._num_used + n) % len(newest.images) for n in range(count - num_cached)]
        self._num_used = (self._num_used + len(fresh)) % len(newest.images)
        parts = [_rows(newest, torch.tensor(fresh, dtype=torch.int64))]
        if num_cached:
            pool = _concatenate(older)
            parts.append(_rows(pool, self._pick(pool, num_cached, step)))
        return _concatenate(parts)

    def _pick(self, pool: DrawnFakes, count: int, step: int) -> Tensor:
        """Return row numbers, without repetition while possible; `balance`: every class in turn."""
        order = torch.randperm(len(pool.images), generator=rng.generator(self.seed, "buffer", step))
        if pool.y_B is not None and self.options.balance:
            order = order[_rank_in_class(pool.y_B[order]).argsort(stable=True)]
        return order.repeat(-(-count // len(order)))[:count]


def _rank_in_class(y_B: Tensor) -> Tensor:
    """Return for each label how many equal ones precede it."""
    turns = torch.zeros_like(y_B)
    for label in y_B.unique():
        of_it = y_B == label
        turns[of_it] = torch.arange(int(of_it.sum()))
    return turns


def _rows(delivery: DrawnFakes, rows: Tensor) -> DrawnFakes:
    images = delivery.images[rows.to(delivery.images.device)]
    y_B = None if delivery.y_B is None else delivery.y_B[rows]
    return DrawnFakes(images, y_B, tuple(delivery.versions[n] for n in rows.tolist()))


def _concatenate(parts: list[DrawnFakes]) -> DrawnFakes:
    if len(parts) == 1:
        return parts[0]
    labels = [part.y_B for part in parts if part.y_B is not None]
    versions = tuple(chain.from_iterable(part.versions for part in parts))
    images = torch.cat([part.images for part in parts])
    return DrawnFakes(images, torch.cat(labels) if labels else None, versions)
