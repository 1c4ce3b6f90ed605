"""What the turns of a stack are fed: what each cell would be, one after the other; and a feed's tensors, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.core.protocols import Augment
from paragan.core.types import Batch, Rows, TurnInputs
from paragan.game.prior import Prior
from paragan.loading.loader import Loader, next_joint_batch

_TURN_FIELDS, _BATCH_FIELDS = ("z_BZ", "y_B", "condition"), ("x_BCHW", "y_B", "condition")


def tensors_of(feed: TurnInputs) -> dict[str, Tensor]:
    """All but ready-made fakes."""
    own = {name: getattr(feed, name) for name in _TURN_FIELDS}
    real = {f"real/{name}": None if feed.real is None else getattr(feed.real, name) for name in _BATCH_FIELDS}
    return {name: value for name, value in (own | real).items() if value is not None}


def with_tensors(feed: TurnInputs, tensors: Mapping[str, Tensor]) -> TurnInputs:
    """tensors: by the names that `tensors_of` has for this feed."""
    own: dict[str, Any] = {name: tensors[name] for name in _TURN_FIELDS if name in tensors}
    real: dict[str, Any] = {name: tensors[f"real/{name}"] for name in _BATCH_FIELDS if f"real/{name}" in tensors}
    return replace(feed, **own, real=None if feed.real is None else replace(feed.real, **real))


@dataclass
class CellStreams:
    """The next batch of every cell, one after the other."""

    streams: Sequence[Iterator[Batch]]

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        loaders = [stream for stream in self.streams if isinstance(stream, Loader)]
        if len(loaders) == len(self.streams):
            return next_joint_batch(loaders)
        batches = [next(stream) for stream in self.streams]
        rows = replace(batches[0].rows, count=sum(batch.rows.count for batch in batches))
        images, labels = [batch.x_BCHW for batch in batches], [batch.y_B for batch in batches]
        return Batch(rows, _concatenate(images), _concatenate(labels))


class CellPriors(Prior):
    """What each cell would draw."""

    priors: Sequence[Prior]

    def __init__(self, first: Prior, priors: Sequence[Prior]) -> None:
        super().__init__(first.seed, first.latent, first.num_classes, first.device, first.dtype)
        object.__setattr__(self, "priors", priors)

    def drawn(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        each = replace(rows, count=rows.count // len(self.priors))
        drawn = [prior.draw_on_cpu(stream, each) for prior in self.priors]
        return torch.cat([z for z, _ in drawn]), _concatenate([y for _, y in drawn])


@dataclass(frozen=True)
class CellAugments:
    """What each cell's images would be shown as."""

    augment: Augment
    cells: Sequence[Cell]

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor:
        each = replace(rows, count=rows.count // len(self.cells))
        parts = zip(self.cells, x_BCHW.chunk(len(self.cells)), strict=True)
        return torch.cat([self.augment(x, cell.gan.prior.seed, stream, each) for cell, x in parts])


def _concatenate(values: Sequence[Tensor | None]) -> Tensor | None:
    there = [value for value in values if value is not None]
    return torch.cat(there) if there else None
