"""Samples on which a game is tried before a run writes anything."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from paragan.core import rng
from paragan.core.source import Source, check_finite
from paragan.core.types import Batch, Rows, present_tensors
from paragan.game.gan import GAN
from paragan.loading.loader import normalise_images


def noise(game: GAN, shape: tuple[int, int, int], num_classes: int, has_pairs: bool, count: int) -> Batch:
    """Return `count` images of noise, with labels and conditions if the data has some."""
    rows = Rows(step=0, first=0, count=count, total=count)
    prior = game.prior

    def images(stream: str) -> Tensor:
        drawn = rng.uniform(prior.seed, f"trial/{stream}", rows, shape)
        return (drawn * 2 - 1).to(prior.device, prior.dtype)

    y = None
    if num_classes:
        y = rng.integers(prior.seed, "trial/real", rows, num_classes).to(prior.device)
    condition = images("condition") if has_pairs else None
    return Batch(rows, present_tensors(image=images("real"), label=y, condition=condition))


def first_samples(source: Source, game: GAN, count: int) -> Batch:
    """Return the first samples of named tensors, up to `count`."""
    count = min(count, len(source) or count)
    rows = np.arange(count)
    fetched = source.fetch(rows, rows)
    check_finite(fetched, source.where)
    moved = {name: value.to(game.prior.device) for name, value in fetched.items()}
    tensors = normalise_images(moved, source, game.prior.dtype)
    return Batch(Rows(step=0, first=0, count=count, total=count), tensors)
