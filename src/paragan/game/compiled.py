"""Refusal of settings that compiled networks do not support, before compilation."""

from __future__ import annotations

from collections.abc import Mapping

from paragan.core.errors import ConfigError
from paragan.core.types import Can, Side
from paragan.game.gan import GAN
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.hardware import executors


def refuse_unsupported_executor(
    executor: str, game: GAN, options: Mapping[Side, PlayerOptions], ranks: int = 1, in_threads: bool = False
) -> None:
    """Raise `ConfigError` if networks are to be compiled and a setting does not support it.

    in_threads: whether the players train at the same time in one process.
    """
    if executor not in ("compile", "graphs"):
        return
    obstacle = "a scheme whose players train at the same time in one process" if in_threads else None
    if game.balancer is not None and game.balancer.layer is not None:
        obstacle = obstacle or "balancer.last_layer"
    for player in (seat for seat in game.slots.values() if isinstance(seat, Player)):
        obstacle = obstacle or _obstacle(player, options[player.side])
        if executor == "graphs":
            obstacle = obstacle or _graph_obstacle(player, ranks)
    if obstacle is not None:
        problem = f"train.executor={executor} does not support {obstacle}"
        raise ConfigError(f"{problem}; set train.executor=eager, or change that setting")


def _obstacle(player: Player, options: PlayerOptions) -> str | None:
    if Can.WHOLE_WEIGHTS not in player.strategy.can:
        name = "" if options.strategy is None else f"={options.strategy.name}"
        return f"{player.side.value}.strategy{name}, which shards weights"
    return f"{player.side.value}.recompute=true" if options.recompute else None


def _graph_obstacle(player: Player, ranks: int) -> str | None:
    """Return what CUDA graphs do not support: a second replay overwrites the first's results.

    Raises `ConfigError` on a device without graphs.
    """
    device = player.strategy.device(player.net)
    if not executors.can_record(device):
        raise ConfigError("train.executor=graphs needs an accelerator; use train.executor=eager")
    if ranks > 1:
        return f"{ranks} ranks"
    parts = player.policy.micro_batches
    return f"{player.side.value}.micro_batches={parts}" if parts > 1 else None
