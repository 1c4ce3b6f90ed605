"""Choice of the training loop, with or without rollbacks, and what a run needs before its first step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd, lcm

import torch

from paragan.build.initial_weights import initial_paths, initialised
from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.network_factory import Model
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.engine.rollback import RollbackLoop
from paragan.engine.training_loop import TrainingLoop
from paragan.game.compiled import refuse_unsupported_executor
from paragan.game.gan import GAN


def loop_class(config: RunConfig, roles: Roles, reading: bool) -> Callable[..., TrainingLoop]:
    """Return the constructor of the loop on these roles.

    Raises `ConfigError` for a rollback with the scheme `parameter_server`.
    """
    period = _sync_period(config, roles)
    if config.rollback is None or reading:
        return partial(TrainingLoop, roles=roles, sync_period=period)
    if config.scheme.name == "parameter_server":
        problem = "rollback does not support scheme parameter_server, whose workers count turns by the step"
        raise ConfigError(f"{problem}; use another scheme, or leave rollback out")
    return partial(RollbackLoop, rollback=config.rollback, roles=roles, sync_period=period)


def refuse_execution(
    config: RunConfig,
    device: torch.device,
    game: GAN,
    num_ranks: int,
    in_threads: bool,
) -> None:
    """Raise `ConfigError` for an executor or offload that this run does not support."""
    side = next((name for name, player in config.player_options.items() if player.offload), None)
    if device.type == "cpu" and side is not None:
        raise ConfigError(f"{side}.offload=true needs an accelerator; pass {side}.offload=false")
    options = {Side(name): player for name, player in config.player_options.items()}
    refuse_unsupported_executor(config.train.executor, game, options, num_ranks, in_threads)


def with_bases(
    config: RunConfig, trainer: TrainingLoop, model: Model | None, say: Callable[[str], None]
) -> TrainingLoop:
    """Load the weights of `initialised` that checkpoints do not hold, and return the trainer."""
    if any(player.trains_part for player in config.player_options.values()) and initial_paths(config):
        initialised(config, trainer, model, say)
    return trainer


def _sync_period(config: RunConfig, roles: Roles) -> int:
    """Return the steps after which the ranks of each separate player have equal weights."""
    periods = []
    for name, options in config.player_options.items():
        if options.strategy is not None and len(roles.ranks.get(Side(name), ())) > 1:
            kind = registry.load_module("parallel", options.strategy.name).Strategy
            updates = kind(options.strategy.options).sync_period
            periods.append(updates // gcd(updates, options.updates_per_step))
    return lcm(*periods)
