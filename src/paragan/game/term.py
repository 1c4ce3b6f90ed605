"""A loss of one's own, beside the adversarial one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.protocols import Penalty, PenaltyContext
from paragan.core.types import Can, Outputs, TurnInputs


@dataclass(frozen=True)
class Term(Penalty):
    """A penalty from a function of what the networks of a turn returned and were fed.

    function: (outputs, feed) to a value per sample; trailing axes (pixels, patches) count as their mean. It never calls
    a network: what it needs beside images, the generator returns in `Made.extra`. weight: of the term in the loss.
    """

    name: str
    function: Callable[[Outputs, TurnInputs], Tensor]
    weight: float = 1.0
    interval: int = 1
    needs: frozenset[Can] = frozenset()
    per_sample: bool = False

    def __call__(self, part: PenaltyContext) -> Tensor:
        values = self.function(part.outputs, part.feed)
        if not isinstance(values, Tensor) or values.dim() == 0:
            found = "a mean over the batch" if isinstance(values, Tensor) else f"a {type(values).__name__}"
            raise ConfigError(f"term {self.name}: found {found}, expected one value per sample: leave the batch axis")
        return self.weight * self.interval * (values.flatten(1).mean(1) if values.dim() > 1 else values)
