"""Gradient normalization of adversarial flow models (Lin et al. 2025, arXiv 2511.22475).

The adversarial gradient at G's output is divided by a moving average of its size, so that its force
against other terms does not depend on D.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from paragan.core import balancer
from paragan.core.balancer import ADVERSARIAL, TermGradients

_EPSILON = 1e-8
_DECAY = 0.9  # of the average of the squared norm, which begins at 0, as in the authors' code


@dataclass(frozen=True)
class Options:
    """No options: an `adversarial.weight` of 1 pulls at each value of G's output as hard as a mean absolute error."""


class Balancer(balancer.Balancer):
    """Gradient normalization; `adversarial.weight` multiplies the normalised gradient."""

    name = "gradient_normalization"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.state = {"square": torch.zeros((), dtype=torch.float64)}

    def factors(self, gradients: TermGradients) -> Mapping[str, Tensor]:
        """Return the factor, and advance the average: called once per update."""
        weight = gradients.weight(ADVERSARIAL)
        if ADVERSARIAL not in gradients.at_output or not weight:
            return {}
        num_values = gradients.rows.total * prod(gradients.at_output[ADVERSARIAL][0].shape[1:])  # of the global batch
        average = self.state["square"]  # on the device of the game, which moves it there
        # Without the weight, which is to remain a factor. A mean absolute error, whose gradient is 1 / n at each of n
        # values, has norm^2 = n (1 / n)^2, so norm^2 n = 1.
        square = (gradients.norm([ADVERSARIAL]) / weight).to(average.dtype).square() * num_values
        average.lerp_(square, 1 - _DECAY)
        return {ADVERSARIAL: 1.0 / (average.sqrt() + _EPSILON)}
