"""What does not go with compiled networks, told before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from paragan.core.errors import ConfigError
from paragan.core.types import Can, Side
from paragan.game.gan import GAN
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.hardware import executors


def refuse_unsupported_executor(
    executor: str, game: GAN, options: Mapping[Side, PlayerOptions], ranks: int = 1, is_concurrent: bool = False
) -> None:
    """`ConfigError` if networks are to be compiled, and something does not go with it. ranks: that share a batch.

    is_concurrent: the players train at the same time (`Scheme.is_concurrent`).
    """
    if executor not in ("compile", "graphs"):
        return
    found = "a scheme whose players do not take turns" if is_concurrent else None
    for player in (seat for seat in (game.g, game.d) if isinstance(seat, Player)):
        found = found or _obstacle(player, options[player.side])
        if executor == "graphs":
            found = found or _unrecorded(player, ranks)
    if found is not None:
        raise ConfigError(f"train.executor: found {executor} with {found}; set train.executor=eager, or leave that out")


def _obstacle(player: Player, options: PlayerOptions) -> str | None:
    if Can.WHOLE_WEIGHTS not in player.strategy.can:
        name = "" if options.strategy is None else f"={options.strategy.name}"
        return f"{player.side.value}.strategy{name}, which cuts weights"
    return f"{player.side.value}.recompute=true" if options.recompute else None


def _unrecorded(player: Player, ranks: int) -> str | None:
    """Recorded launches own the memory of their results: the next part's would overwrite the gradients of one."""
    device = player.strategy.device(player.net)
    if not executors.can_record(device):
        return f"the device {device.type}, which records no launches"
    if ranks > 1:
        return f"{ranks} ranks"
    return (
        f"{player.side.value}.micro_batches={player.policy.micro_batches}" if player.policy.micro_batches > 1 else None
    )
