"""R1 (Mescheder et al. 2018, "Which Training Methods for GANs do actually Converge?", equation 9).

gamma/2 * |grad_x D(x)|^2 on real samples.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.capabilities import Capability
from paragan.core.outputs import DiscriminatorOutput, mean_per_sample, sum_of
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.layers.precision import as_real
from paragan.penalties._options import GammaOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(GammaOptions):
    """Weight and period of R1."""


def r1_penalty(logits_B: Tensor, x: Tensor) -> Tensor:
    """Return |d D(x) / dx|^2 / 2 per sample, R1 for a custom loop, to be multiplied by gamma.

    x: the real samples, with `requires_grad_()` before the forward that made `logits_B`. Autograd retains the
    gradient's graph for the loss. With a loss scale (fp16) use `Player`, which unscales the inner gradient.
    """
    (gradient,) = torch.autograd.grad(logits_B.sum(), x, create_graph=True)
    return _squared_norm(gradient) / 2


class Penalty(OptionsPenalty):
    """R1 on the logits that the loss uses, without another forward.

    Patch logits count as their mean per sample. If D mixes samples (batch norm) the gradient is
    that of the sum over the batch, as usual. Penalties of several discriminators are added.
    """

    name = "r1"
    side = Side.D
    needs = frozenset({Capability.DOUBLE_BACKWARD})

    def __call__(self, context: PenaltyContext) -> Tensor:
        gamma = self.weight_at(context.feed.rows)
        output, x = self._inputs(context)
        logits = [mean_per_sample(member.logits_B) for member in output.by_name.values()]
        gradients = [context.input_gradient(logits_B, x) for logits_B in logits]
        return gamma / 2 * sum_of([_squared_norm(gradient) for gradient in gradients])

    def _inputs(self, context: PenaltyContext) -> tuple[DiscriminatorOutput, Tensor]:
        """Return D's output, and the samples with respect to which its logits are differentiated."""
        assert context.outputs.real is not None
        return context.outputs.real, context.feed.real_sample


def _squared_norm(gradient: Tensor) -> Tensor:
    """Return the squared norm per sample, of complex numbers that of both parts."""
    return as_real(gradient).flatten(1).square().sum(1)
