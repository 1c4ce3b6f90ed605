"""Scaling with the number of workers: the batch, and with the batch the learning rates."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import sqrt

from paragan.core.errors import ConfigError
from paragan.game.options import PlayerOptions

RULES: Mapping[str, Callable[[float], float]] = {"sqrt": sqrt, "linear": lambda ratio: ratio, "none": lambda ratio: 1.0}


def scaled_batch(bs: int, num_workers: int, actual: int) -> int:
    """Return the global batch of `actual` workers with as many images each as in `bs / num_workers`.

    Raises `ConfigError` if that is no whole number of images, or less than one for each.
    """
    for name, value in (("bs", bs), ("num_workers", num_workers)):
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}")
    if bs < num_workers:
        raise ConfigError(f"bs={bs} is less than one image for each of {num_workers} workers; pass a larger bs")
    batch, rest = divmod(bs * actual, num_workers)
    if rest:
        nearest = num_workers * round(bs / num_workers)
        raise ConfigError(
            f"bs={bs} for {num_workers} workers is {bs * actual / num_workers:g} images for the {actual} of this run; "
            f"pass a multiple of num_workers such as {nearest}"
        )
    return batch


def learning_rate_factor(rule: str, ratio: float) -> float:
    """Return the learning-rate factor of a batch `ratio` times as large.

    Raises `ConfigError` for a rule that is not in `RULES`.
    """
    if rule not in RULES:
        raise ConfigError(f"rule must be one of {', '.join(RULES)}, not {rule!r}")
    return RULES[rule](ratio)


def scale_learning_rates(player: PlayerOptions, by: float) -> PlayerOptions:
    """Return the player with its learning rates times `by`; its schedule does not change."""
    optimizer = player.optimizer
    groups = tuple({**group, "lr": group["lr"] * by} if "lr" in group else group for group in optimizer.groups)
    return replace(player, optimizer=replace(optimizer, lr=optimizer.lr * by, groups=groups))
