"""Learning-rate factors by finished updates, counted on the device without a host sync."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paragan.game.options import ScheduleOptions


def factor(options: ScheduleOptions, count: Tensor) -> Tensor:
    """Return the factor of update `count` (0-dim, from 0): 1 after warm-up, at the end `final`."""
    n = count.double()  # float32 would add a relative error of 1e-8
    warm = ((n + 1) / options.warmup).clamp(max=1.0) if options.warmup else torch.ones_like(n)
    if options.name == "constant":
        return warm
    progress = ((n - options.start) / max(options.end - options.start, 1)).clamp(0.0, 1.0)
    shape = progress if options.name == "linear" else (1 - torch.cos(progress * math.pi)) / 2
    return warm * (1 - (1 - options.final) * shape)


def varies(options: ScheduleOptions) -> bool:
    """Return whether the factor ever differs from 1."""
    return options.warmup > 0 or options.name != "constant"
