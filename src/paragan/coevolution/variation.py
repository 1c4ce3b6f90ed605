"""Selection and mutation between generations; draws are keyed by purpose, never by process."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from paragan.coevolution.options import RateOptions
from paragan.core import rng
from paragan.core.types import Side


def tournament(
    fitness: Sequence[float],
    size: int,
    seed: int,
    cell: int,
    generation: int,
    side: Side,
) -> int:
    """Return the index of the fittest of `size` drawn without replacement; ties: first drawn."""
    generator = rng.generator(seed, "tournament", cell, generation, side.value)
    drawn = torch.randperm(len(fitness), generator=generator)[:size].tolist()
    return int(min(drawn, key=lambda index: fitness[index] if math.isfinite(fitness[index]) else math.inf))


def mutate_lr(lr: float, options: RateOptions, seed: int, cell: int, generation: int, side: Side) -> float:
    """Return the learning rate after a possible mutation."""
    generator = rng.generator(seed, "rate", cell, generation, side.value)
    drawn = float(torch.rand((), generator=generator, dtype=torch.float64))
    step = options.rate * float(torch.randn((), generator=generator, dtype=torch.float64))
    if drawn >= options.probability:
        return lr
    return lr * math.exp(step) if options.form == "lognormal" else max(0.0, lr + step)


def draw_loss(count: int, seed: int, cell: int, generation: int) -> int:
    """Draw the number of a loss uniformly from `count` (Mustangs)."""
    generator = rng.generator(seed, "loss", cell, generation, 0)
    return int(torch.randint(count, (), generator=generator))
