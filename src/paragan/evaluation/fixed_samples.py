"""Sample sheets of a run: always the same latents, or the same held-out pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.event import Event
from paragan.core.not_finite import finite_tensors
from paragan.core.phases import Phase, phase
from paragan.core.source import Source
from paragan.core.types import Batch, Clock, Rows
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_images, grid_latents, sampling_network
from paragan.loading.normalise import normalise, normalise_images

GRID_COLUMNS = 10
NUM_PAIRS = 8
_CPU = torch.device("cpu")
PAIR_COLUMNS = 6  # two pairs to a row: each is input, output, target


class SampleSheet(NamedTuple):
    """Images x_BCHW in [-1, 1], `columns` per row, and the name of each row: of its class, if any.

    tensors: samples that the images show, if they are no images themselves (audio under its spectrogram), by the name
    of the row. values: more for the record.
    """

    images: Tensor
    columns: int
    rows: tuple[str, ...] = ()
    tensors: Mapping[str, Tensor] = MappingProxyType({})
    values: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class FixedSamples:
    """Sampling of a generator on fixed latents, or on the first conditions of `held_out` pairs."""

    mode: Mode = "eval"
    held_out: Source | None = None

    @phase(Phase.EVALUATION)
    def __call__(self, player: Player, prior: Prior, class_names: tuple[str, ...]) -> SampleSheet:
        """Return the sheet."""
        generator = sampling_network(player)
        if self.held_out is None:
            z, y = grid_latents(prior, GRID_COLUMNS)
            x = generate_images(generator, z, y, mode=self.mode, seed=prior.seed)
            if y is None or not prior.num_comparable_classes:  # the generator ignores labels: rows have no names
                return SampleSheet(x, GRID_COLUMNS)
            rows = tuple(class_names[c] for c in y[::GRID_COLUMNS].tolist())  # a row is of one class
            return SampleSheet(x, GRID_COLUMNS, rows)
        count = min(NUM_PAIRS, len(self.held_out))
        target, condition = fetch_pairs(self.held_out, 0, count, prior.device)
        z, _ = prior.draw("grid", Rows(step=0, first=0, count=count, total=count))
        x = generate_images(generator, z, y_B=None, batch=count, condition=condition, mode=self.mode, seed=prior.seed)
        return SampleSheet(side_by_side(condition, x, target), PAIR_COLUMNS)


def samples_event(clock: Clock, sheet: SampleSheet, mode: Mode) -> Event:
    """Return the event of a sample sheet."""
    values = {
        "path": f"samples/step-{clock.step:07d}.png",
        "columns": sheet.columns,
        "rows": sheet.rows,
        "shape": list(sheet.images.shape[1:]),
        "num": len(sheet.images),
        "mode": mode,
        **sheet.values,
    }
    return Event(
        kind="samples",
        step=clock.step,
        images=clock.images,
        values=values,
        x_BCHW=sheet.images,
        columns=sheet.columns,
        tensors=sheet.tensors,
    )


def fetch_pairs(source: Source, first: int, count: int, device: torch.device = _CPU) -> tuple[Tensor, Tensor]:
    """Fetch targets and conditions of these rows, in [-1, 1]; draws no random numbers."""
    fetched = source.fetch(np.arange(first, first + count))
    # both are images, so this needs none of the declarations that `normalise_images` reads
    return normalise(fetched["image"].to(device)), normalise(fetched["condition"].to(device))


def fetch_batch(source: Source, rows: Rows, prior: Prior, numbers: NDArray[np.int64] | None = None) -> Batch:
    """Fetch the named tensors of these rows on the prior's device, images in [-1, 1].

    numbers: of the samples in the data; None: those of the rows.
    """
    if numbers is None:
        numbers = np.arange(rows.first, rows.first + rows.count)
    fetched = source.fetch(numbers, places=numbers)  # random crops depend on the sample alone
    fetched = finite_tensors(fetched, source, lambda row: source.where(int(numbers[row])))
    moved = {name: value.to(prior.device) for name, value in fetched.items()}
    return Batch(rows, normalise_images(moved, source, prior.dtype))


def side_by_side(*columns_BCHW: Tensor) -> Tensor:
    """Interleave equal batches: the first image of each, then the second of each; grey next to colour is repeated."""
    channels = max(x.shape[1] for x in columns_BCHW)
    columns = [x.expand(-1, channels, -1, -1) if x.shape[1] == 1 else x for x in columns_BCHW]
    return torch.stack(columns, 1).flatten(0, 1)
