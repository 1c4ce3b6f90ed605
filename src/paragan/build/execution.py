"""Execution of a game: whether scheme, executor, strategies and device have what it needs, and its training loop."""

from collections.abc import Callable
from functools import partial
from math import gcd, lcm

import torch

from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.capabilities import ALL, EXECUTORS, Capability, Holder, check_capabilities, needed
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.engine.training_loop import TrainingLoop
from paragan.game.gan import GAN
from paragan.game.needs import game_needs
from paragan.game.player import Player
from paragan.game.scheme import Scheme
from paragan.hardware import executors


def check_execution(config: RunConfig, device: torch.device, scheme: Scheme, game: GAN, num_ranks: int) -> None:
    """Raise `ConfigError` if scheme, executor, strategies or device do not have what the settings need."""
    capabilities = ALL if device.type != "cpu" else ALL - {Capability.OFFLOAD}
    if not executors.can_record(device):
        capabilities -= {Capability.GRAPHS}
    check_capabilities(Holder(f"a {device.type.upper()}", capabilities), config.needs)
    check_capabilities(scheme.holder, config.needs)
    check_executor(config, game, num_ranks)


def check_executor(config: RunConfig, game: GAN, num_ranks: int = 1) -> None:
    """Raise `ConfigError` if strategies lack what the executor needs, or the executor what game and settings need."""
    # Only what the executor needs of a strategy; `game.needs` checks the rest.
    compiled = [need for need in config.needs if need.capability in (Capability.COMPILE, Capability.GRAPHS)]
    for player in game.slots.values():
        if isinstance(player, Player):  # not a remote one, whose strategy its own ranks check
            check_capabilities(player.strategy.holder, compiled)
    if config.train.executor in EXECUTORS:  # eager runs everything
        ranks = needed((num_ranks > 1, f"a run on {num_ranks} ranks", Capability.RANKS))
        check_capabilities(EXECUTORS[config.train.executor], (*config.needs, *game_needs(game), *ranks))


def loop_class(config: RunConfig, roles: Roles, reading: bool) -> Callable[..., TrainingLoop]:
    """Return the constructor of the loop on these roles. reading: a run is read, never rolled back."""
    period = _sync_period(config, roles)
    if config.rollback is None or reading:
        return partial(TrainingLoop, roles=roles, sync_period=period)
    from paragan.engine.rollback import RollbackLoop  # few runs need it

    return partial(RollbackLoop, rollback=config.rollback, roles=roles, sync_period=period)


def _sync_period(config: RunConfig, roles: Roles) -> int:
    """Return the steps after which all ranks of a player have equal weights, for players on ranks of their own.

    Local SGD differs in between, which ranks of the other player cannot see. Where ranks have both players, 1.
    """
    periods = []
    for name, options in config.player_options.items():
        if options.strategy is not None and len(roles.ranks.get(Side(name), ())) > 1:
            kind = registry.load_module("parallel", options.strategy.name).Strategy
            updates = kind(options.strategy.options).sync_period
            # steps until a multiple of `updates` is the end of a step
            periods.append(updates // gcd(updates, options.updates_per_step))
    return lcm(*periods)
