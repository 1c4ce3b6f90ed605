"""Inputs and losses of stacked turns: those of the cells, concatenated; and tensors by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from paragan.core.protocols import Augment, Loss
from paragan.core.types import Batch, Rows, TurnInputs
from paragan.extensions.grid.cell import Cell
from paragan.game.prior import Prior
from paragan.loading.loader import BatchStream, next_joint_batch


def tensors_of(feed: TurnInputs) -> dict[str, Tensor]:
    """Return the tensors of turn inputs by name, except ready-made fakes."""
    real = {} if feed.real is None else feed.real.tensors
    return {**feed.tensors, **{f"real/{name}": value for name, value in real.items()}}


def with_tensors(feed: TurnInputs, tensors: Mapping[str, Tensor]) -> TurnInputs:
    """Replace the tensors of turn inputs. tensors: by the names of `tensors_of`."""
    drawn = {name: tensors[name] for name in feed.tensors}
    if feed.real is None:
        return replace(feed, tensors=drawn)
    real = {name: tensors[f"real/{name}"] for name in feed.real.tensors}
    return replace(feed, tensors=drawn, real=replace(feed.real, tensors=real))


def joint_batches(streams: Sequence[BatchStream]) -> Iterator[Batch]:
    """Yield the next batches of all cells, concatenated."""
    while True:
        yield next_joint_batch(streams)


@dataclass(frozen=True, kw_only=True)
class CellPriors(Prior):
    """Prior that concatenates the draws of the cells' priors."""

    priors: Sequence[Prior] = ()

    @classmethod
    def of(cls, priors: Sequence[Prior]) -> CellPriors:
        """Join the priors of the cells; all else than their draws is equal, and that of the first."""
        shared = {option.name: getattr(priors[0], option.name) for option in fields(Prior)}
        return cls(**shared, priors=priors)

    def draw_on_cpu(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Draw from each cell's prior, and concatenate in the order of the cells."""
        rows_of_cell = replace(rows, count=rows.count // len(self.priors))
        draws = [prior.draw_on_cpu(stream, rows_of_cell) for prior in self.priors]
        labels = [y for _, y in draws if y is not None]
        return torch.cat([z for z, _ in draws]), torch.cat(labels) if labels else None


@dataclass(frozen=True)
class CellAugments:
    """Augmentation of the images of each cell with the seed of that cell."""

    augment: Augment
    cells: Sequence[Cell]

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor:
        rows_of_cell = replace(rows, count=rows.count // len(self.cells))
        parts = zip(self.cells, x_BCHW.chunk(len(self.cells)), strict=True)
        return torch.cat([self.augment(x, cell.gan.prior.seed, stream, rows_of_cell) for cell, x in parts])


class MixedLoss:
    """Losses of `num` cells with `rows` rows each.

    A tensor on the device stores the loss number of each row, which a recorded turn reads. Equal
    sets of losses share one `Loss` object, however they are assigned to cells.
    """

    def __init__(self, num: int, rows: int, device: torch.device) -> None:
        self.device = device
        self._number_B = torch.zeros(num * rows, dtype=torch.uint8, device=device)
        self._rows = rows
        self._assigned: tuple[int, ...] = ()  # what `_number_B` holds: the set of losses, and the loss of each cell
        self._losses: dict[tuple[int, ...], Loss] = {}  # by set of losses

    def of(self, losses: Sequence[Loss]) -> Loss:
        """Return the loss of all rows, from losses by cell; one that all share is unchanged."""
        distinct = sorted({id(loss): loss for loss in losses}.values(), key=id)
        if len(distinct) == 1:
            return distinct[0]
        key = tuple(map(id, distinct))
        numbers = tuple(key.index(id(loss)) for loss in losses)
        if (*key, *numbers) != self._assigned:
            self._assigned = (*key, *numbers)
            numbers_C = torch.tensor(numbers, dtype=torch.uint8)
            self._number_B.copy_(numbers_C.repeat_interleave(self._rows))
        if key not in self._losses:
            self._losses[key] = self._combine(distinct)
        return self._losses[key]

    def _combine(self, losses: Sequence[Loss]) -> Loss:
        """Return the loss that computes all of these, and selects one for each row."""

        def d(real: Tensor, fake: Tensor) -> Tensor:
            return self._select([loss.d(real, fake) for loss in losses])

        def g(fake: Tensor, real: Tensor | None) -> Tensor:
            return self._select([loss.g(fake, real) for loss in losses])

        return Loss(d, g, any(loss.g_needs_real for loss in losses))

    def _select(self, values_of_losses: Sequence[Tensor]) -> Tensor:
        result = values_of_losses[0]
        number_B = self._number_B.view(-1, *(1 for _ in result.shape[1:]))
        for number, values in enumerate(values_of_losses[1:], start=1):
            result = torch.where(number_B == number, values, result)
        return result
