"""What changes with the number of workers: the batch, and with the batch the learning rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import sqrt

from paragan.core.errors import ConfigError
from paragan.game.options import PlayerOptions

RULES: Mapping[str, Callable[[float], float]] = {
    "sqrt": sqrt,
    "linear": lambda ratio: ratio,
    "none": lambda ratio: 1.0,
}


def fitted(bs: int, num_workers: int, found: int) -> int:
    """The global batch of `found` workers, each with as many images as where `num_workers` share `bs`.

    `ConfigError` where that is no whole number of images, or less than one on each.
    """
    for name, value in (("bs", bs), ("num_workers", num_workers)):
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name}: found {value!r}, expected a whole number of at least 1")
    if bs < num_workers:
        raise ConfigError(f"bs: found {bs} images for {num_workers} workers, expected at least one for each")
    batch, rest = divmod(bs * found, num_workers)
    if rest:
        nearest = num_workers * round(bs / num_workers)
        raise ConfigError(
            f"bs: found {bs} images for {num_workers} workers, which is {bs * found / num_workers:g} for the {found} "
            f"found here; give a multiple of num_workers such as {nearest}"
        )
    return batch


def factor(rule: str, ratio: float) -> float:
    """Of the learning rate, where the batch is `ratio` times the one it was chosen at. rule: a name in `RULES`."""
    refuse_unknown(rule)
    return RULES[rule](ratio)


def refuse_unknown(rule: str) -> None:
    if rule not in RULES:
        raise ConfigError(f"rule: found {rule!r}, expected one of {', '.join(RULES)}")


def scaled(player: PlayerOptions, by: float) -> PlayerOptions:
    """The same player with its learning rate times `by`; its schedule is a factor on that, and stays."""
    return replace(player, optimizer=replace(player.optimizer, lr=player.optimizer.lr * by))
