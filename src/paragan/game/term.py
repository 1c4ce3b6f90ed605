"""A custom loss term, added to the adversarial loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.outputs import Outputs, mean_per_sample
from paragan.core.printable import counted
from paragan.core.protocols import Penalty, PenaltyContext
from paragan.core.types import Side, TurnInputs
from paragan.core.weight_schedule import WeightSchedule


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
            raise ConfigError(
                f"term {self.name} returned {_description(values, rows.count)}; "
                "return one value per sample: keep the batch axis"
            )
        return self.weight_at(rows) * mean_per_sample(values)


def _description(values: Any, count: int) -> str:
    if not isinstance(values, Tensor):
        return f"a {type(values).__name__}"
    shape = tuple(values.shape)
    return f"a tensor of {shape} for {counted(count, 'sample')}" if shape else "a mean over the batch"
