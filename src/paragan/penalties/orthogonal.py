"""Orthogonal regularisation without the diagonal (Brock et al. 2019, equation 3).

beta * |W W^T (1 - I)|^2 (Frobenius), summed over the layers: filters of a layer should differ, not have norm 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.layers.precision import as_real
from paragan.layers.spectral_norm import SpectralNorm
from paragan.penalties._options import LazyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(LazyOptions):
    """Weight, period and side of orthogonal regularisation."""

    weight: Weight = 1e-4
    """Weight of the term in the loss: the paper's beta."""
    side: Literal["g", "d"] = "g"
    """Network whose weights are penalised."""


class Penalty(OptionsPenalty):
    """Penalty on weights of linear and convolutional layers, one filter per row.

    Weights in use, with adapters, but before spectral norm. Raises `ConfigError` if none of them trains. A
    value of the weights, not of samples: every row has the whole value, because the strategy averages over rows.
    """

    name = "orthogonal"
    needs = frozenset({Capability.WHOLE_WEIGHTS})

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.side = Side(options.side)

    def __call__(self, context: PenaltyContext) -> Tensor:
        value = sum(map(_overlap, _matrices(context.network.module)), torch.zeros(()))
        if torch.is_grad_enabled() and not value.requires_grad:
            raise ConfigError(
                f"penalty orthogonal on {self.side.value}: it reaches no weight that trains; leave it out, or let a "
                f"linear or convolutional layer train ({self.side.value}.train, {self.side.value}.freeze)"
            )
        rows = context.feed.rows
        return (self.weight_at(rows) * value).expand(rows.count)


def _overlap(matrix: Tensor) -> Tensor:
    """Return the sum of squared inner products of different rows, each pair twice."""
    gram = (matrix @ matrix.mH).fill_diagonal_(0)
    return as_real(gram).square().sum()


def _matrices(net: nn.Module) -> Iterator[Tensor]:
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
            weight = _weight_in_use(module)
            weight = weight.transpose(0, 1) if isinstance(module, nn.modules.conv._ConvTransposeNd) else weight
            if len(weight) > 1:  # one filter differs from no other
                yield weight.flatten(1)


def _weight_in_use(module: nn.Module) -> Tensor:
    """Return the weight with all parametrizations, such as adapters, up to the first spectral norm."""
    chain = getattr(getattr(module, "parametrizations", None), "weight", None)
    if chain is None or not any(isinstance(parametrization, SpectralNorm) for parametrization in chain):
        return module.weight  # type: ignore[return-value]
    weight = chain.original
    for parametrization in chain:
        if isinstance(parametrization, SpectralNorm):
            break
        weight = parametrization(weight)
    return weight
