"""Start of a balancer in a game."""

from __future__ import annotations

from collections.abc import Sequence

from paragan.core import registry
from paragan.core.balancer import ADVERSARIAL, Balancer
from paragan.core.capabilities import check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.protocols import Penalty, PlayerSlot
from paragan.core.weight_schedule import WeightSchedule
from paragan.game.player import Player


def begin(balancer: Balancer | None, g: PlayerSlot, penalties: Sequence[Penalty]) -> None:
    """Give a balancer the names of G's terms; `ConfigError` for one that does not fit G."""
    if balancer is None:
        return
    if not isinstance(balancer, Balancer):
        raise ConfigError(f"balancer: {type(balancer).__name__} is not a balancer; derive it from paragan.Balancer")
    balancer.begin([ADVERSARIAL, *(penalty.name for penalty in penalties)])
    if balancer.needs_others and all(map(_ends_at_zero, penalties)):
        names = ", ".join(penalty.name for penalty in penalties)
        raise ConfigError(
            f"balancer {balancer.name}: the weight of {names} ends at 0, and with it that of the "
            "adversarial loss, so that G would stop; let it end above 0, or leave the balancer out"
        )
    if isinstance(g, Player):
        _refuse_unsupported(balancer, g)


def _ends_at_zero(penalty: Penalty) -> bool:
    return isinstance(penalty.weight, WeightSchedule) and not penalty.weight.final


def _refuse_unsupported(balancer: Balancer, g: Player) -> None:
    check_capabilities(g.strategy.holder, balancer.needs)
    if balancer.layer is None:
        return
    names = [name for name, module in g.net.named_modules() if next(module.parameters(recurse=False), None) is not None]
    if balancer.layer not in names:
        problem = f"balancer.last_layer={balancer.layer} is no layer of G with weights"
        hint = registry.did_you_mean(registry.closest_name(balancer.layer, names))
        raise ConfigError(f"{problem}; choose one, such as {', '.join(names[-3:])}{hint}")
