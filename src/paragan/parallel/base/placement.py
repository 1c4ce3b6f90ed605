"""State that a strategy attaches to a network, so that strategies are stateless."""

from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor, nn

from paragan.core.dist import World


@dataclass(kw_only=True)
class Placement:
    """State of a placed network: its ranks, and what its strategy must find again in a later call.

    training_module: the module called in the turns of its player: DDP's wrapper, or the network. mesh: of sharded
    networks. shards: each weight with the piece of it that the optimiser of this rank steps (zero1 to zero3, tensor).

    Of `ddp`: unreached: by kind of turn, the weights that this rank's loss does not depend on, and those that no rank's
    does; idle: the latter in the current turn, which get no gradient. Of `local_sgd`: optimized_weights: those that are
    averaged; anchor: their values after the last average, if only differences are sent; constants: weights that were
    frozen when the optimiser was built, and must stay so.
    """

    world: World
    training_module: nn.Module
    mesh: Any = None
    unreached: dict[Any, tuple[list[nn.Parameter], list[nn.Parameter]]] = field(default_factory=dict)
    idle: list[nn.Parameter] = field(default_factory=list)
    shards: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    optimized_weights: list[Tensor] = field(default_factory=list)
    anchor: list[Tensor] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)


def attach_placement(net: nn.Module, placement: Placement) -> nn.Module:
    """Attach the state to the network, and return the network."""
    object.__setattr__(net, "_placement", placement)  # as no attribute that `nn.Module` would register
    return net


def placement_of(net: nn.Module) -> Placement:
    """Return the state that is attached to the network."""
    return cast(Placement, net._placement)
