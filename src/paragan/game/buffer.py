"""Generated images that wait for a discriminator: newest first, with a share of older ones among them.

ParaGAN caches what G has made so that D need not wait for it; a pool of past images also keeps D from forgetting them
(Shrivastava et al. 2017, section 2.3). Nothing that is too old is ever shown: D would learn what G no longer does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.option_types import Count, Fraction, Natural


@dataclass(frozen=True)
class BufferOptions:
    """capacity: images held on a rank. max_age: updates of G, from the newest images held, beyond which an image is
    dropped. cached: the share of a batch that is taken from older images, drawn at random. balance: draw those so that
    all classes come equally often, however often they are held.
    """

    capacity: Count = 4096
    max_age: Natural = 8
    cached: Fraction = 0.0
    balance: bool = True


@dataclass(frozen=True)
class DrawnFakes:
    """Images for one batch, their labels, on the host, and the version of the generator that made each."""

    images: Tensor
    y_B: Tensor | None
    versions: tuple[int, ...]


class Buffer:
    """Images of one rank, delivery by delivery. seed: of the draws, which depend on it and on the batch alone."""

    def __init__(self, options: BufferOptions, seed: int) -> None:
        self.options, self.seed = options, seed
        self._held: list[DrawnFakes] = []  # in order of version
        self._shown = 0  # of the newest delivery

    @property
    def newest(self) -> int | None:
        """The version of the newest images; None: there are none."""
        return self._held[-1].versions[0] if self._held else None

    def __len__(self) -> int:
        return sum(len(held.images) for held in self._held)

    def put(self, images: Tensor, y_B: Tensor | None, version: int) -> None:
        """Deliver images of one version, not older than those that are here. y_B on the host."""
        assert self.newest is None or version >= self.newest, "deliveries come in order"
        self._held.append(DrawnFakes(images, y_B, (version,) * len(images)))
        self._shown = 0
        oldest = version - self.options.max_age
        self._held = [held for held in self._held if held.versions[0] >= oldest]
        while len(self) > self.options.capacity and len(self._held) > 1:
            del self._held[0]

    def draw(self, count: int, step: int) -> DrawnFakes:
        """`count` images for D's batch number `step`: of the newest delivery, on from where it was left, and older
        ones. All newest where there are no others; they come again where they are too few.
        """
        assert self._held, "nothing has been delivered"
        *older, newest = self._held
        num_cached = round(count * self.options.cached) if older else 0
        fresh = [(self._shown + n) % len(newest.images) for n in range(count - num_cached)]
        self._shown = (self._shown + len(fresh)) % len(newest.images)
        parts = [_rows(newest, torch.tensor(fresh, dtype=torch.int64))]
        if num_cached:
            pool = _joined(older)
            parts.append(_rows(pool, self._picked(pool, num_cached, step)))
        return _joined(parts)

    def _picked(self, pool: DrawnFakes, count: int, step: int) -> Tensor:
        """Row numbers: without repetition as far as there are enough, of every class in turn where they balance."""
        order = torch.randperm(len(pool.images), generator=rng.generator(self.seed, "buffer", step))
        if pool.y_B is not None and self.options.balance:
            order = order[_turn(pool.y_B[order]).argsort(stable=True)]
        return order.repeat(-(-count // len(order)))[:count]


def _turn(y_B: Tensor) -> Tensor:
    """How many of the same class come before each."""
    turns = torch.zeros_like(y_B)
    for label in y_B.unique():
        of_it = y_B == label
        turns[of_it] = torch.arange(int(of_it.sum()))
    return turns


def _rows(held: DrawnFakes, rows: Tensor) -> DrawnFakes:
    images = held.images[rows.to(held.images.device)]
    return DrawnFakes(
        images, None if held.y_B is None else held.y_B[rows], tuple(held.versions[n] for n in rows.tolist())
    )


def _joined(parts: list[DrawnFakes]) -> DrawnFakes:
    if len(parts) == 1:
        return parts[0]
    labels = [part.y_B for part in parts if part.y_B is not None]
    versions = tuple(version for part in parts for version in part.versions)
    return DrawnFakes(torch.cat([part.images for part in parts]), torch.cat(labels) if labels else None, versions)
