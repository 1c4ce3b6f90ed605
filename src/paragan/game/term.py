"""A custom loss term, added to the adversarial loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from paragan.game.held_state import HeldState
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


def code_of(penalty: Penalty) -> object | None:
    """Return the code of a user in a penalty, a function or the penalty itself; None for one of paragan's."""
    if not type(penalty).__module__.startswith("paragan."):
        return penalty
    return penalty.function if isinstance(penalty, Term) else None


def tried(penalty: Penalty, nets: Sequence[nn.Module], used: set[Capability]) -> Penalty:
    """Let a user's penalty raise `ConfigError` where its values have no gradient; return it.

    It also warns of weights that it calls and that are of none of the networks. used: receives what it uses. Penalties
    of paragan say themselves what they need, and may begin with a constant.
    """
    if (code := code_of(penalty)) is None:
        return penalty
    kind = type(penalty)
    held = HeldState(code).tensors
    known = {id(weight) for net in nets for weight in net.parameters()}

    def call(self: Penalty, context: PenaltyContext) -> Tensor:
        values: Tensor = kind.__call__(self, _noting_whole(context, used))
        if isinstance(values, Tensor) and torch.is_grad_enabled() and not values.requires_grad:
            raise ConfigError(
                f"penalty {penalty.name} of {penalty.side.value}: its values have no gradient, so it would train "
                "nothing: is there a detach or a no_grad, or does it read data or frozen weights only?"
            )
        if isinstance(values, Tensor) and values.requires_grad:
            leaves = [leaf for leaf in graph_leaves([values]) if id(leaf) not in known]
            known.update(map(id, leaves))
            _notice_weights(penalty.name, [leaf for leaf in leaves if _is_held(leaf, held)])
        return values

    # its class, as a function of it would lack its attributes; past the lock of frozen dataclasses
    object.__setattr__(
        penalty, "__class__", type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})
    )
    return penalty


def _noting_whole(context: PenaltyContext, used: set[Capability]) -> PenaltyContext:
    """Return a context whose `whole` adds to `used`."""

    def whole(x_B: Tensor) -> Tensor:
        used.add(Capability.COUPLED)
        return context.whole(x_B)

    return replace(context, whole=whole, outputs=replace(context.outputs, whole=whole))


def _is_held(leaf: Tensor, held: Sequence[Tensor]) -> bool:
    """Return whether a leaf is a weight, or one of these tensors, rather than an input of the turn."""
    return isinstance(leaf, nn.Parameter) or any(leaf is tensor for tensor in held)


def _notice_weights(name: str, weights: Sequence[Tensor]) -> None:
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
