"""A custom loss term, added to the adversarial loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.outputs import Outputs, mean_per_sample
from paragan.core.printable import counted, join_some
from paragan.core.protocols import Penalty, PenaltyContext
from paragan.core.types import Side, TurnInputs
from paragan.core.weight_schedule import WeightSchedule
from paragan.game.gradient_flow import notice
from paragan.game.registered_state import graph_leaves


@dataclass(frozen=True, kw_only=True)
class Term(Penalty):
    """A penalty from a function of the outputs and inputs of a turn.

    function: (outputs, feed) to one value per sample; trailing axes (pixels, patches) are averaged. It must not call
    a network: the generator returns other tensors that it needs in `GeneratorOutput.extra`. weight: of the term in
    the loss. side: the player whose loss it joins. needs_real: whether it reads D's output on real samples in G's
    turn. uses_discriminator: whether it reads D's output on fakes there, also before the adversarial loss acts.
    """

    name: str
    function: Callable[[Outputs, TurnInputs], Tensor]
    weight: float | WeightSchedule = 1.0
    interval: int = 1
    needs: frozenset[Capability] = frozenset()
    per_sample: bool = False
    side: Side = Side.G
    needs_real: bool = False
    uses_discriminator: bool = False

    def __call__(self, context: PenaltyContext) -> Tensor:
        values = self.function(context.outputs, context.feed)
        rows = context.feed.rows
        shape = tuple(values.shape) if isinstance(values, Tensor) else ()
        if not shape or shape[0] != len(context.outputs.images):
            problem = f"term {self.name} returned {_description(values, rows.count)}"
            raise ConfigError(f"{problem}; return one value per sample: keep the batch axis")
        return self.weight_at(rows) * mean_per_sample(values)


def tried(penalty: Penalty, nets: Sequence[nn.Module]) -> Penalty:
    """Let a user's penalty raise `ConfigError` where its values have no gradient; return it.

    It also warns of weights that it calls and that are of none of the networks. Penalties of paragan say themselves
    what they need, and may begin with a constant.
    """
    kind = type(penalty)
    if kind.__module__.startswith("paragan.") and kind is not Term:
        return penalty

    def call(self: Penalty, context: PenaltyContext) -> Tensor:
        values: Tensor = kind.__call__(self, context)
        if isinstance(values, Tensor) and torch.is_grad_enabled() and not values.requires_grad:
            raise ConfigError(
                f"penalty {penalty.name} of {penalty.side.value}: its values have no gradient, so it would train "
                "nothing: is there a detach or a no_grad, or does it read data or frozen weights only?"
            )
        if isinstance(values, Tensor) and values.requires_grad:
            _notice_weights(penalty.name, values, nets)
        return values

    # its class, as a function of it would lack its attributes; past the lock of frozen dataclasses
    object.__setattr__(
        penalty, "__class__", type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})
    )
    return penalty


def _notice_weights(name: str, values: Tensor, nets: Sequence[nn.Module]) -> None:
    known = {id(weight) for net in nets for weight in net.parameters()}
    weights = [leaf for leaf in graph_leaves([values]) if isinstance(leaf, nn.Parameter) and id(leaf) not in known]
    if weights:
        notice(
            f"penalty {name} calls weights of no player (of shape "
            f"{join_some([str(tuple(weight.shape)) for weight in weights], 5)}), which no optimizer trains: give their "
            "network as players={NAME: net}, or freeze it with requires_grad_(False)"
        )


def _description(values: Any, count: int) -> str:
    if not isinstance(values, Tensor):
        return f"a {type(values).__name__}"
    shape = tuple(values.shape)
    return f"a tensor of {shape} for {counted(count, 'sample')}" if shape else "a mean over the batch"
