"""R1 (Mescheder et al. 2018, "Which Training Methods for GANs do actually Converge?", equation 9).

gamma/2 * |grad_x D(x)|^2 on real samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import protocols
from paragan.core.clock import cosine_decay
from paragan.core.outputs import mean_per_sample
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Can, Side
from paragan.penalties._options import FadeOptions


@dataclass(frozen=True)
class Options(FadeOptions):
    """Weight, period and fade of R1.

    Lazy interval: Karras et al. 2020, "Analyzing and Improving the Image Quality of StyleGAN",
    section 3.1.
    """


def r1_penalty(logits_B: Tensor, x: Tensor) -> Tensor:
    """Return |d D(x) / dx|^2 / 2 per sample, R1 for a custom loop, to be multiplied by gamma.

    x: the real samples, with `requires_grad_()` before the forward that made `logits_B`. Autograd
    retains the gradient's graph for the loss. With a loss scale (fp16) use `Player`, which unscales
    the inner gradient.
    """
    (gradient,) = torch.autograd.grad(logits_B.sum(), x, create_graph=True)
    return gradient.flatten(1).square().sum(1) / 2


class Penalty(protocols.Penalty):
    """R1 on the logits that the loss uses, without another forward.

    Patch logits count as their mean per sample. If D mixes samples (batch norm) the gradient is
    that of the sum over the batch, as usual.
    """

    name = "r1"
    side = Side.D
    needs = frozenset({Can.DOUBLE_BACKWARD})

    def __init__(self, options: FadeOptions) -> None:
        self.options = options
        self.interval = options.interval

    def __call__(self, context: PenaltyContext) -> Tensor:
        options = self.options
        rows = context.feed.rows
        weight = cosine_decay(options.weight, options.final, options.final_kimg, rows)
        gamma = weight * options.interval
        logits, x = self._inputs(context)
        gradient = context.input_gradient(mean_per_sample(logits), x)
        return gamma / 2 * gradient.flatten(1).square().sum(1)

    def _inputs(self, context: PenaltyContext) -> tuple[Tensor, Tensor]:
        """Return logits, and the samples with respect to which they are differentiated."""
        assert context.outputs.real is not None
        return context.outputs.real.logits_B, context.feed.real_sample
