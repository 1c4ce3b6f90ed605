"""Choice of the training loop, with or without rollbacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd, lcm

from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.engine.rollback import RollbackLoop
from paragan.engine.training_loop import TrainingLoop


def loop_class(config: RunConfig, is_concurrent: bool, roles: Roles, reading: bool) -> Callable[..., TrainingLoop]:
    """Return the constructor of the loop on these roles. is_concurrent: of the scheme.

    Raises `ConfigError` for a rollback of a run whose checkpoints are not all of its state.
    """
    period = _sync_period(config, roles)
    if config.rollback is None or reading:
        return partial(TrainingLoop, roles=roles, sync_period=period)
    name = config.scheme.name
    if is_concurrent or roles.is_split or name == "parameter_server":
        problem = f"rollback does not support scheme {name}"
        raise ConfigError(f"{problem}; use scheme synchronous, or leave rollback out")
    if period > 1:
        problem = "rollback does not support strategy local_sgd"
        raise ConfigError(f"{problem}; use ddp, or leave rollback out")
    return partial(RollbackLoop, rollback=config.rollback, roles=roles)


def _sync_period(config: RunConfig, roles: Roles) -> int:
    """Return the steps after which the ranks of each separate player have equal weights."""
    periods = []
    for side, options in ((Side.G, config.g), (Side.D, config.d)):
        if options.strategy is not None and len(roles.ranks.get(side, ())) > 1:
            kind = registry.load_module("parallel", options.strategy.name).Strategy
            updates = kind(options.strategy.options).sync_period
            periods.append(updates // gcd(updates, options.updates_per_step))
    return lcm(*periods)
