"""Sample sheets of a run: always the same latents, or the same held-out pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paragan.core.clock import Clock
from paragan.core.event import Event
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_images, grid_latents, sampling_network
from paragan.loading.loader import normalise

GRID_COLUMNS = 10
NUM_PAIRS = 8
_CPU = torch.device("cpu")
PAIR_COLUMNS = 6  # two pairs to a row: each is input, output, target


@dataclass(frozen=True)
class FixedSamples:
    """Sampling of a generator on fixed latents, or on the first conditions of `held_out` pairs."""

    mode: Mode = "eval"
    held_out: Source | None = None

    def __call__(
        self, player: Player, prior: Prior, class_names: tuple[str, ...]
    ) -> tuple[Tensor, int, tuple[str, ...]]:
        """Return x_BCHW in [-1, 1], images per row, and the class of each row (if any)."""
        generator = sampling_network(player)
        if self.held_out is None:
            z, y = grid_latents(prior, GRID_COLUMNS)
            x = generate_images(generator, z, y, mode=self.mode, seed=prior.seed)
            if y is None or not prior.num_comparable_classes:
                return x, GRID_COLUMNS, ()
            return x, GRID_COLUMNS, tuple(class_names[c] for c in y[::GRID_COLUMNS].tolist())
        count = min(NUM_PAIRS, len(self.held_out))
        target, condition = fetch_pairs(self.held_out, 0, count, prior.device)
        z, _ = prior.draw("grid", Rows(0, 0, count, count))
        made = generate_images(generator, z, None, NUM_PAIRS, condition, self.mode, seed=prior.seed)
        return side_by_side(condition, made, target), PAIR_COLUMNS, ()


def samples_event(clock: Clock, x_BCHW: Tensor, columns: int, rows: tuple[str, ...], mode: Mode) -> Event:
    """Return the event of sample images. rows: the class of each row; empty without classes."""
    values = {
        "path": f"samples/step-{clock.step:07d}.png",
        "columns": columns,
        "rows": rows,
        "shape": list(x_BCHW.shape[1:]),
        "num": len(x_BCHW),
        "mode": mode,
    }
    return Event("samples", clock.step, clock.images, values=values, x_BCHW=x_BCHW, columns=columns)


def fetch_pairs(source: Source, first: int, count: int, device: torch.device = _CPU) -> tuple[Tensor, Tensor]:
    """Fetch targets and conditions of these rows, in [-1, 1]; draws no random numbers."""
    fetched = source.fetch(np.arange(first, first + count))
    return normalise(fetched["image"].to(device)), normalise(fetched["condition"].to(device))


def side_by_side(*columns_BCHW: Tensor) -> Tensor:
    """Interleave equal batches: the first image of each, then the second of each, and so on."""
    return torch.stack(columns_BCHW, 1).flatten(0, 1)
