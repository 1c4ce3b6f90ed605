"""Checks of the penalties and the balancer of a game, when it is constructed."""

import math
from collections.abc import Collection, Sequence
from numbers import Integral, Real

from paragan.core import registry
from paragan.core.balancer import ADVERSARIAL, Balancer
from paragan.core.capabilities import check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.protocols import Penalty, PlayerSlot
from paragan.core.types import Side
from paragan.core.weight_schedule import WeightSchedule
from paragan.game.player import Player


def check_penalties(side: Side, penalties: tuple[Penalty, ...], players: Collection[str]) -> None:
    """Raise `ConfigError` unless these are penalties of a player, each with a name of its own.

    players: names of the other players, which penalties may call.
    """
    if not isinstance(penalties, tuple):
        raise ConfigError(f"{side.value}: penalties must be a tuple, not {type(penalties).__name__}; write (penalty,)")
    for penalty in penalties:
        if not isinstance(penalty, Penalty):
            raise ConfigError(
                f"{side.value}: {type(penalty).__name__} is not a penalty; derive it from paragan.Penalty"
            )
        if not hasattr(penalty, "name"):
            raise ConfigError(f"{side.value}: the penalty {type(penalty).__name__} has no name; set one")
        _check_numbers(side, penalty)
        if unknown := [name for name in penalty.players if name not in players]:
            raise ConfigError(
                f"{side.value}: {penalty.name} calls the player {unknown[0]!r}, which does not exist; choose one of "
                f"{', '.join(sorted(players))}, or define it in players"
            )
    names = ["adversarial", *(penalty.name for penalty in penalties)]
    if (repeated := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise ConfigError(
            f"{side.value}: two losses are called {repeated!r}, but names must be unique; "
            "leave one out, or set the other side for one of the penalties"
        )


def _check_numbers(side: Side, penalty: Penalty) -> None:
    weight, interval = penalty.weight, penalty.interval
    if not (isinstance(interval, Integral) and interval >= 1):
        raise ConfigError(f"{side.value}: {penalty.name} has interval={interval!r}; pass an integer from 1")
    if not (isinstance(weight, WeightSchedule) or (isinstance(weight, Real) and math.isfinite(weight))):
        raise ConfigError(f"{side.value}: {penalty.name} has weight={weight!r}; pass a finite number")


def begin_balancer(balancer: Balancer, g: PlayerSlot, penalties: Sequence[Penalty]) -> None:
    """Give a balancer the names of G's terms; `ConfigError` for one that does not fit G."""
    if not isinstance(balancer, Balancer):
        raise ConfigError(f"balancer: {type(balancer).__name__} is not a balancer; derive it from paragan.Balancer")
    names = [penalty.name for penalty in penalties]
    balancer.begin([ADVERSARIAL, *names])
    end_at_0 = [isinstance(penalty.weight, WeightSchedule) and not penalty.weight.final for penalty in penalties]
    if balancer.needs_others and all(end_at_0):
        raise ConfigError(
            f"balancer {balancer.name}: the weight of {', '.join(names)} ends at 0, and with it that of the "
            "adversarial loss, so that G would stop; let it end above 0, or leave the balancer out"
        )
    if not isinstance(g, Player):
        return
    check_capabilities(g.strategy.holder, balancer.needs)
    layers = [
        name for name, module in g.net.named_modules() if next(module.parameters(recurse=False), None) is not None
    ]
    if balancer.layer is not None and balancer.layer not in layers:
        raise ConfigError(
            f"balancer.last_layer={balancer.layer} is not a layer of G with weights; choose one, such as "
            f"{', '.join(layers[-3:])}{registry.did_you_mean(registry.closest_name(balancer.layer, layers))}"
        )
