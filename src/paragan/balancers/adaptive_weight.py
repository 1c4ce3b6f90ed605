"""Adaptive weight of the adversarial loss (Esser et al. 2021, "Taming Transformers", equation 7).

|grad of the other terms| / (|grad of the adversarial term| + 1e-4) at the weights of G's last layer,
limited to [0, 1e4].
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from paragan.core import balancer
from paragan.core.balancer import ADVERSARIAL, TermGradients
from paragan.core.errors import ConfigError

_DELTA = 1e-4
_MAX_WEIGHT = 1e4


@dataclass(frozen=True)
class Options:
    """Where gradients are compared."""

    last_layer: str | None = None
    """Name of G's last layer, at whose weights gradients are compared, as `decoder.conv_out`; null: at G's output."""


class Balancer(balancer.Balancer):
    """Adaptive weight; the losses of G that depend on its output are the other terms.

    `adversarial.weight` multiplies the result (0.8 in the authors' code). Terms of other outputs,
    such as a codebook loss, are not counted. In an update without another term, because of its
    interval or its schedule, the weight is 0; a term with an interval n makes it n times as large in its own updates.
    """

    name = "adaptive_weight"
    needs_others = True

    def __init__(self, options: Options) -> None:
        self.layer = options.last_layer

    def begin(self, names: Sequence[str]) -> None:
        _check_not_alone(_without_adversarial(names))

    def factors(self, gradients: TermGradients) -> Mapping[str, Tensor]:
        weight = gradients.weight(ADVERSARIAL)
        if ADVERSARIAL not in gradients.at_output or not weight:
            return {}
        others = _without_adversarial(gradients.at_output)
        _check_not_alone([*others, *gradients.absent])  # again: terms that do not depend on G's output are known now
        if not others:
            return {ADVERSARIAL: gradients.at_output[ADVERSARIAL][0].new_zeros(())}
        # without `adversarial.weight`, which the gradient has already
        factor = gradients.norm(others) / (gradients.norm([ADVERSARIAL]) / weight + _DELTA)
        return {ADVERSARIAL: factor.clamp(max=_MAX_WEIGHT)}


def _without_adversarial(names: Iterable[str]) -> list[str]:
    return [name for name in names if name != ADVERSARIAL]


def _check_not_alone(others: Sequence[str]) -> None:
    if not others:
        raise ConfigError(
            "balancer adaptive_weight compares the adversarial loss with another term of G's output, but G has none; "
            "add one, such as the penalty l1, or leave the balancer out"
        )
