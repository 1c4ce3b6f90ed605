"""Interface of balancers, which weigh the terms of G's loss by their gradients at G's output."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from paragan.core.capabilities import Capability, Need, needed
from paragan.core.outputs import identity, sum_of
from paragan.core.types import Rows

ADVERSARIAL = "adversarial"


@dataclass(frozen=True, kw_only=True)
class TermGradients:
    """Gradients of the terms of G's loss, those of their means over the global batch.

    at_output: gradients (B, ...) at G's output by term, one for each micro-batch of this rank; without terms that
    do not depend on it. rows: those of this rank. weights: weights that the terms contain already, to be restored
    after a normalisation; 1 where missing. sum_over_ranks: of a tensor, in place. layer_norm(names): norm of the
    summed gradient at the weights of the balancer's layer. Norms are collective, and equal on all ranks.
    intervals: intervals of the penalties in this update; their weights contain them. postponed: penalties left out
    of this update by their interval alone. absent: all penalties left out, also those whose schedule is at 0.
    """

    at_output: Mapping[str, Sequence[Tensor]]
    rows: Rows
    weights: Mapping[str, float] = field(default_factory=dict)
    sum_over_ranks: Callable[[Tensor], Tensor] = identity
    layer_norm: Callable[[Sequence[str]], Tensor] | None = None
    intervals: Mapping[str, int] = field(default_factory=dict)
    postponed: Sequence[str] = ()
    absent: Sequence[str] = ()

    def norm(self, names: Sequence[str]) -> Tensor:
        """Return the norm of the summed gradient of terms, at the layer, or else at the output."""
        if self.layer_norm is not None:
            return self.layer_norm(names)
        parts = zip(*(self.at_output[name] for name in names), strict=True)
        squares = [sum_of(gradients).square().sum() for gradients in parts]
        return self.sum_over_ranks(torch.stack(squares).sum()).sqrt()

    def mean_norm(self, name: str) -> Tensor:
        """Return the mean norm of a sample's gradient at the output, over the global batch."""
        norms = [gradient.flatten(1).norm(dim=1).sum() for gradient in self.at_output[name]]
        return self.sum_over_ranks(torch.stack(norms).sum()) / self.rows.total

    def weight(self, name: str) -> float:
        """Return the weight that a term contains."""
        return self.weights.get(name, 1.0)


class Balancer(ABC):
    """Base class of balancers; a subclass sets `name` and defines `factors`."""

    name: str
    layer: str | None = None
    """Name of a module of G: gradients are compared at its weights. None: at G's output."""
    needs_others: bool = False
    """Whether the adversarial loss does not act without another term of G."""

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """Tensors that it changes, as `Penalty.state`; saved with G, and restored if G's step is skipped."""
        return {}

    @property
    def needs(self) -> tuple[Need, ...]:
        """What it needs of the scheme, G's strategy and the executor."""
        return needed(
            (True, f"balancer {self.name}", Capability.BALANCER),
            (self.layer is not None, f"balancer.last_layer={self.layer}", Capability.LAYER_GRADIENTS),
        )

    def begin(self, names: Sequence[str]) -> None:  # noqa: B027 most need nothing
        """Receive the names of all terms of G, before the first update; `ConfigError` if wrong."""

    @abstractmethod
    def factors(self, gradients: TermGradients) -> Mapping[str, Tensor]:
        """Return factors of terms by name, 0-dim, equal on all ranks; 1 for others."""
