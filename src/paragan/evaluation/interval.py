"""Intervals of metrics, by halves of the generated images."""

from collections.abc import Callable

import torch
from torch import Tensor

from paragan.core.errors import DivergedError
from paragan.core.interrupt import StopRequested

_WIDTH = 1.96  # standard errors on either side, for 95 %


def half_sample_interval(
    value: float, compute: Callable[[Tensor], float], count: int, resamples: int, is_share: bool = False
) -> tuple[float, float] | None:
    """Return a 95 % interval around a metric's value on `count` images; None if it has none.

    compute: the metric of the images with these numbers, ascending. It is called for random halves drawn without
    replacement, always the same ones: their spread is the standard error of the whole (D. N. Politis, J. P. Romano,
    "Large sample confidence regions based on subsamples under minimal assumptions", Annals of Statistics 1994, with
    half of the sample). No image is drawn twice, which metrics of neighbours and pairs would take for an exact copy.
    Only the generated images are resampled, not the real ones. Without a value for a half, there is no interval.
    is_share: values lie in [0, 1], to which the interval is cut.
    """
    if resamples < 2 or count < 2:
        return None
    generator = torch.Generator().manual_seed(0)
    try:
        orders = [torch.randperm(count, generator=generator) for _ in range(resamples)]
        halves = [compute(order[: count // 2].sort().values) for order in orders]
    except (StopRequested, DivergedError):
        raise
    except Exception:  # of any kind: a metric may be a user's, and half of the images too few for it
        return None
    # no factor: a mean over half of n, drawn without replacement, has the variance s^2 / n of one over n
    error = float(torch.tensor(halves, dtype=torch.float64).std())
    low, high = value - _WIDTH * error, value + _WIDTH * error
    return (max(low, 0.0), min(high, 1.0)) if is_share else (low, high)
