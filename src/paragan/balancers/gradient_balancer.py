"""Loss balancer of EnCodec (Defossez et al. 2022, arXiv 2210.13438, section 3.4).

The gradient at G's output is sum_i R (w_i / sum w) g_i / mean|g_i|, with a moving average of the
mean norm of a sample's gradient: a term's share does not depend on the size of its loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paragan.core import balancer
from paragan.core.balancer import TermGradients
from paragan.core.errors import ConfigError
from paragan.core.option_types import Fraction, Positive

_EPSILON = 1e-12


@dataclass(frozen=True)
class Options:
    """Shares of the terms, and the average of their norms."""

    weights: dict[str, Positive] = field(default_factory=dict)
    """Shares w_i by term: {adversarial: 4, feature_matching_l1: 4, l1: 0.1}; other terms are not
    balanced. Empty: all that depend on G's output have equal shares."""
    total_norm: Positive = 1.0
    """R: mean norm of a sample's gradient at the output, if all terms pull in one direction."""
    decay: Fraction = 0.999
    """Decay of the moving average of norms; early averages are plain means, as in the authors'
    code."""


class Balancer(balancer.Balancer):
    """EnCodec's balancer, equal to the authors' code on one process with the whole batch.

    A term's weight cancels out, except `adversarial.weight`, which multiplies its share. A term
    with an interval n has n times its share of every n-th update, and none of the others.
    """

    name = "gradient_balancer"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.state = {}

    def begin(self, names: Sequence[str]) -> None:
        if unknown := next((name for name in self.options.weights if name not in names), None):
            raise ConfigError(f"balancer.weights.{unknown}: G has no such term; its terms are {', '.join(names)}")
        for name in self.options.weights or names:
            for key in ("sum", "count"):
                self.state.setdefault(f"{name}/{key}", torch.zeros((), dtype=torch.float64))

    def factors(self, gradients: TermGradients) -> Mapping[str, Tensor]:
        shares = self.options.weights or dict.fromkeys(gradients.at_output, 1.0)
        # gradients contain the weight and the interval of their term already
        weights = {name: gradients.weight(name) for name in shares if name in gradients.at_output}
        balanced = [name for name, weight in weights.items() if weight]
        total: Any = sum(shares[name] * weights[name] for name in balanced)
        for name in gradients.postponed:  # other terms do not get its share in the meantime
            if f"{name}/count" in self.state:  # 0 before its first update: does it depend on G's output at all?
                share = shares.get(name, 0.0 if self.options.weights else 1.0)
                total = total + share * (self.state[f"{name}/count"] > 0)
        factors = {}
        for name in balanced:
            interval = gradients.intervals.get(name, 1)
            norm = self._average(name, gradients.mean_norm(name) / (weights[name] * interval))
            factors[name] = self.options.total_norm * shares[name] / total / (norm + _EPSILON)
        return factors

    def _average(self, name: str, norm: Tensor) -> Tensor:
        """Add a norm to the moving average of a term, and return it."""
        summed = self.state[f"{name}/sum"]
        count = self.state[f"{name}/count"]
        summed.mul_(self.options.decay).add_(norm.detach().to(summed.dtype))
        count.mul_(self.options.decay).add_(1)
        return summed / count
