"""Inputs of stacked turns: those of the cells concatenated; and the tensors of turn inputs by name."""

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

_TURN_FIELDS = ("z_BZ", "y_B", "condition")
_BATCH_FIELDS = ("x_BCHW", "y_B", "condition")


def tensors_of(feed: TurnInputs) -> dict[str, Tensor]:
    """Tensors of turn inputs by name, except ready-made fakes."""
    latents = {name: getattr(feed, name) for name in _TURN_FIELDS}
    real = {f"real/{name}": None if feed.real is None else getattr(feed.real, name) for name in _BATCH_FIELDS}
    return {name: value for name, value in (latents | real).items() if value is not None}


def with_tensors(feed: TurnInputs, tensors: Mapping[str, Tensor]) -> TurnInputs:
    """Replace the tensors of turn inputs. tensors: by the names of `tensors_of`."""
    latents: dict[str, Any] = {name: tensors[name] for name in _TURN_FIELDS if name in tensors}
    real: dict[str, Any] = {name: tensors[f"real/{name}"] for name in _BATCH_FIELDS if f"real/{name}" in tensors}
    return replace(feed, **latents, real=None if feed.real is None else replace(feed.real, **real))


@dataclass
class CellStreams:
    """Stream of the next batches of all cells, concatenated."""

    streams: Sequence[Iterator[Batch]]

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        loaders = [stream for stream in self.streams if isinstance(stream, Loader)]
        if len(loaders) == len(self.streams):
            return next_joint_batch(loaders)
        batches = [next(stream) for stream in self.streams]
        rows = replace(batches[0].rows, count=sum(batch.rows.count for batch in batches))
        images = _concatenate([batch.x_BCHW for batch in batches])
        labels = _concatenate([batch.y_B for batch in batches])
        return Batch(rows, images, labels)


class CellPriors(Prior):
    """Prior that concatenates the draws of the cells' priors."""

    priors: Sequence[Prior]

    def __init__(self, first: Prior, priors: Sequence[Prior]) -> None:
        super().__init__(first.seed, first.latent, first.num_classes, first.device, first.dtype)
        object.__setattr__(self, "priors", priors)

    def draw_on_cpu(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        each = replace(rows, count=rows.count // len(self.priors))
        drawn = [prior.draw_on_cpu(stream, each) for prior in self.priors]
        return torch.cat([z for z, _ in drawn]), _concatenate([y for _, y in drawn])


@dataclass(frozen=True)
class CellAugments:
    """Augmentation of the images of each cell with its own seed."""

    augment: Augment
    cells: Sequence[Cell]

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor:
        each = replace(rows, count=rows.count // len(self.cells))
        parts = zip(self.cells, x_BCHW.chunk(len(self.cells)), strict=True)
        return torch.cat([self.augment(x, cell.gan.prior.seed, stream, each) for cell, x in parts])


def _concatenate(values: Sequence[Tensor | None]) -> Tensor | None:
    present = [value for value in values if value is not None]
    return torch.cat(present) if present else None
