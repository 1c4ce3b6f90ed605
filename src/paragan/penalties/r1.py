"""R1 (Mescheder et al. 2018, "Which Training Methods for GANs do actually Converge?", equation 9).

gamma/2 * |grad_x D(x)|^2 on real samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import protocols
from paragan.core.clock import cosine_decay
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Can, Side
from paragan.penalties._logits import mean_per_sample
from paragan.penalties._options import FadeOptions


@dataclass(frozen=True)
class Options(FadeOptions):
    """Weight, period and fade of R1.

    The lazy interval is of Karras et al. 2020, "Analyzing and Improving the Image Quality of
    StyleGAN", section 3.1.
    """


def r1_penalty(logits_B: Tensor, x: Tensor) -> Tensor:
    """|d D(x) / dx|^2 / 2 per sample, to be multiplied by gamma: R1 in a custom loop.

    x: the real samples, with `requires_grad_()` before the forward that made `logits_B`; the graph
    of its gradient is kept for the backward of the loss. Under a loss scale (fp16) use `Player`,
    which unscales the inner gradient.
    """
    (gradient,) = torch.autograd.grad(logits_B.sum(), x, create_graph=True)
    return gradient.flatten(1).square().sum(1) / 2


class Penalty(protocols.Penalty):
    """Needs no forward: it differentiates the logits that the loss uses.

    Patch logits count as their mean per sample.

    If D mixes samples (batch norm) the gradient is that of the sum over the batch, as usual.
    """

    name = "r1"
    side = Side.D
    needs = frozenset({Can.DOUBLE_BACKWARD})

    def __init__(self, options: FadeOptions) -> None:
        self.options = options
        self.interval = options.interval

    def __call__(self, context: PenaltyContext) -> Tensor:
        options = self.options
        gamma = cosine_decay(options.weight, options.final, options.final_kimg, context.feed.rows) * options.interval
        logits, x = self._inputs(context)
        gradient = context.input_gradient(mean_per_sample(logits), x)
        return gamma / 2 * gradient.flatten(1).square().sum(1)

    def _inputs(self, context: PenaltyContext) -> tuple[Tensor, Tensor]:
        """The logits and the samples with respect to which they are differentiated."""
        assert context.outputs.real is not None
        return context.outputs.real.logits_B, context.feed.real_sample
