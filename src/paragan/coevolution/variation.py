"""What chance does between two generations. Every draw is keyed by what it is for, never by who makes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from paragan.coevolution.options import RateOptions
from paragan.core import rng
from paragan.core.types import Side


def tournament(fitness: Sequence[float], size: int, seed: int, cell: int, generation: int, side: Side) -> int:
    """The index of the fittest (lowest) of `size` drawn without replacement; of equal ones the first drawn."""
    draw = rng.generator(seed, "tournament", cell, generation, side.value)
    draw_loss = torch.randperm(len(fitness), generator=draw)[:size].tolist()
    return int(min(draw_loss, key=lambda index: _inf_unless_finite(fitness[index])))


def mutate_lr(lr: float, options: RateOptions, seed: int, cell: int, generation: int, side: Side) -> float:
    """The learning rate after one chance to mutate."""
    draw = rng.generator(seed, "rate", cell, generation, side.value)
    happens = float(torch.rand((), generator=draw, dtype=torch.float64)) < options.probability
    step = options.rate * float(torch.randn((), generator=draw, dtype=torch.float64))
    if not happens:
        return lr
    return lr * math.exp(step) if options.form == "lognormal" else max(0.0, lr + step)


def draw_loss(count: int, seed: int, cell: int, generation: int, batch: int = 0) -> int:
    """One of so many losses, all equally often (Mustangs)."""
    return int(torch.randint(count, (), generator=rng.generator(seed, "loss", cell, generation, batch)))


def _inf_unless_finite(fitness: float) -> float:
    """A loss that is no number loses."""
    return fitness if math.isfinite(fitness) else math.inf
