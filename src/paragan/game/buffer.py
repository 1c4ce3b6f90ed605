"""Buffer of generated samples for D: the newest first, with a share of older ones.

ParaGAN buffers fakes so that D need not wait for G; a pool of past images also prevents D from
forgetting them (Shrivastava et al. 2017, section 2.3). A sample stays with the label, or the other
tensors, from which it was generated. Samples that are too old are dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.tree import concatenate_rows


@dataclass(frozen=True)
class DrawnFakes:
    """Generated samples for one batch with what belongs to them, by name, and the version of G of each.

    tensors: on the device where they were delivered; the first is the sample.
    """

    tensors: Mapping[str, Tensor]
    versions: tuple[int, ...]


class Buffer:
    """Buffered samples of one rank, by delivery; draws depend only on seed and batch number.

    cached: share of a batch that is drawn at random from older samples. max_age: updates of G between a sample and
    the newest, beyond which it is dropped. capacity: most samples.
    """

    def __init__(self, seed: int, cached: float = 0.0, max_age: int = 8, capacity: int = 4096) -> None:
        self.seed = seed
        self.cached = cached
        self.max_age = max_age
        self.capacity = capacity
        self._deliveries: list[DrawnFakes] = []  # by version, ascending
        self._num_used = 0  # of the newest delivery

    @property
    def newest(self) -> int | None:
        """Version of the newest samples; None if the buffer is empty."""
        return self._deliveries[-1].versions[0] if self._deliveries else None

    def __len__(self) -> int:
        return sum(len(delivery.versions) for delivery in self._deliveries)

    def put(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Add samples of one version, not older than those in the buffer (`DrawnFakes.tensors`)."""
        assert self.newest is None or version >= self.newest, "deliveries come in order"
        (sample, *_) = tensors.values()
        self._deliveries.append(DrawnFakes(tensors, (version,) * len(sample)))
        self._num_used = 0
        oldest = version - self.max_age
        self._deliveries = [delivery for delivery in self._deliveries if delivery.versions[0] >= oldest]
        while len(self) > self.capacity and len(self._deliveries) > 1:
            del self._deliveries[0]

    def draw(self, count: int, step: int) -> DrawnFakes:
        """Return `count` samples for D's batch number `step`.

        Older ones, if any, are the share `cached`; new ones continue the last draw, and repeat.
        """
        assert self._deliveries, "nothing has been delivered"
        *older, newest = self._deliveries
        num_cached = round(count * self.cached) if older else 0
        fresh = [(self._num_used + n) % len(newest.versions) for n in range(count - num_cached)]
        self._num_used = (self._num_used + len(fresh)) % len(newest.versions)
        parts = [_rows(newest, torch.tensor(fresh, dtype=torch.int64))]
        if num_cached:
            parts.append(_rows_of(older, self._pick(older, num_cached, step)))
        return _concatenate(parts)

    def _pick(self, deliveries: list[DrawnFakes], count: int, step: int) -> Tensor:
        """Return random row numbers in all deliveries; classes take turns, and rows repeat only once all are used."""
        num_rows = sum(len(delivery.versions) for delivery in deliveries)
        order = torch.randperm(num_rows, generator=rng.generator(self.seed, "buffer", step))
        labels = [delivery.tensors["label"] for delivery in deliveries if "label" in delivery.tensors]
        if labels and labels[0].dim() == 1:
            order = order[_rank_in_class(torch.cat(labels).cpu()[order]).argsort(stable=True)]
        return order.repeat(-(-count // len(order)))[:count]


def _rank_in_class(y_B: Tensor) -> Tensor:
    """Return for each label how many equal ones precede it."""
    ranks = torch.zeros(len(y_B), dtype=torch.int64)  # labels may be of any dtype
    for label in y_B.unique():
        is_label = y_B == label
        ranks[is_label] = torch.arange(int(is_label.sum()))
    return ranks


def _rows(delivery: DrawnFakes, rows: Tensor) -> DrawnFakes:
    tensors = {name: tensor[rows] for name, tensor in delivery.tensors.items()}
    return DrawnFakes(tensors, tuple(delivery.versions[n] for n in rows.tolist()))


def _rows_of(deliveries: list[DrawnFakes], rows: Tensor) -> DrawnFakes:
    """Return these rows of all deliveries, numbered in their order; only these are copied."""
    sizes = torch.tensor([len(delivery.versions) for delivery in deliveries])
    ends = sizes.cumsum(0)
    delivery_of_row = torch.searchsorted(ends, rows, right=True)
    rows_in_delivery = rows - (ends - sizes)[delivery_of_row]
    parts = [
        _rows(deliveries[number], rows_in_delivery[delivery_of_row == number])
        for number in delivery_of_row.unique().tolist()
    ]
    by_delivery = delivery_of_row.argsort(stable=True)  # the order in which `parts` has them
    return _rows(_concatenate(parts), by_delivery.argsort())


def _concatenate(parts: list[DrawnFakes]) -> DrawnFakes:
    if len(parts) == 1:
        return parts[0]
    versions = tuple(version for part in parts for version in part.versions)
    return DrawnFakes(concatenate_rows([part.tensors for part in parts]), versions)
