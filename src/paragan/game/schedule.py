"""Learning-rate factors by finished updates, counted on the device without a host sync."""

import math

import torch
from torch import Tensor

from paragan.game.options import ScheduleOptions


def factor(options: ScheduleOptions, count: Tensor) -> Tensor:
    """Return the factor of update `count` (0-dim, from 0): 1 after warm-up, at the end `final`.

    The factors of exponential, multistep and restarts are those of torch's `lr_scheduler`.
    """
    n = count.double()  # in float32, each factor would be wrong by up to 6e-8 of its value
    warm = ((n + 1) / options.warmup).clamp(max=1.0) if options.warmup else torch.ones_like(n)
    if options.name == "constant":
        return warm
    if decay := _DECAYS.get(options.name):
        return warm * decay(options, n).clamp(min=options.final)
    # linear and cosine end at `final` by their formula
    progress = ((n - options.start) / max(options.end - options.start, 1)).clamp(0.0, 1.0)
    shape = progress if options.name == "linear" else (1 - torch.cos(progress * math.pi)) / 2
    return warm * (1 - (1 - options.final) * shape)


def _exponential(options: ScheduleOptions, n: Tensor) -> Tensor:
    assert options.gamma is not None
    return torch.exp(math.log(options.gamma) * (n - options.start).clamp(min=0))


def _multistep(options: ScheduleOptions, n: Tensor) -> Tensor:
    assert options.gamma is not None
    factor = torch.ones_like(n)
    for milestone in options.milestones:  # comparisons with a number do not wait for the device
        factor = torch.where(n >= milestone, factor * options.gamma, factor)
    return factor


def _inverse_sqrt(options: ScheduleOptions, n: Tensor) -> Tensor:
    """Vaswani et al. 2017, equation 3, whose updates count from 1; with warmup = start the same but for a factor."""
    return (options.start / (n + 1).clamp(min=options.start)).sqrt()


def _restarts(options: ScheduleOptions, n: Tensor) -> Tensor:
    """Loshchilov and Hutter 2017, equation 5."""
    since = (n - options.start).clamp(min=0)
    length = torch.full_like(n, options.period)
    if options.growth > 1:  # cosine i has period * growth^i updates; those before it have a geometric sum
        cycles = since / options.period * (options.growth - 1) + 1
        number = (cycles.log() / math.log(options.growth) + _ROUNDING).floor()
        length = options.period * (number * math.log(options.growth)).exp().round()
        since = since - (length - options.period) / (options.growth - 1)
    since = since.remainder(length)  # of growth 1; a growing cosine begins at 0 already
    return options.final + (1 - options.final) * (1 + torch.cos(since / length * math.pi)) / 2


_ROUNDING = 1e-12  # the logarithm of a cosine's first update may lie this far below its whole number
_DECAYS = {"exponential": _exponential, "multistep": _multistep, "inverse_sqrt": _inverse_sqrt, "restarts": _restarts}


def varies(options: ScheduleOptions) -> bool:
    """Return whether the factor ever differs from 1."""
    return options.warmup > 0 or options.name != "constant"
