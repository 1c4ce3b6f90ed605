"""R1 (Mescheder et al. 2018, "Which Training Methods for GANs do actually Converge?", equation 9).

gamma/2 * |grad_x D(x)|^2 on real samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import protocols
from paragan.core.clock import cosine_decay
from paragan.core.option_types import Count, NotNegative, Positive
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Can, Side
from paragan.penalties._input_gradient import squared_gradient


@dataclass(frozen=True)
class Options:
    """Weight, period and fade of R1.

    The lazy interval is of Karras et al. 2020, "Analyzing and Improving the Image Quality of StyleGAN", section 3.1.
    """

    weight: NotNegative = 10.0
    """Weight of the term in the loss: the paper's gamma."""
    interval: Count = 1
    """Apply it at every n-th update only, n times as strong (lazy regularisation)."""
    final: NotNegative | None = None
    """Weight after the first `final_kimg`, reached by a cosine fade (Huang et al. 2024, appendix); null: constant."""
    final_kimg: Positive = 20_000.0
    """Length of the fade in thousands of real images."""


def r1_penalty(logits_B: Tensor, x: Tensor) -> Tensor:
    """|d D(x) / dx|^2 / 2 per sample, to be multiplied by gamma: R1 in a custom loop.

    x: the real samples, with `requires_grad_()` before the forward that made `logits_B`; the graph of its gradient is
    kept for the backward of the loss. Under a loss scale (fp16) use `Player`, which unscales the inner gradient.
    """
    (gradient,) = torch.autograd.grad(logits_B.sum(), x, create_graph=True)
    return gradient.flatten(1).square().sum(1) / 2


class Penalty(protocols.Penalty):
    """Needs no forward: it differentiates the logits that the loss uses. Patch logits count as their mean per sample.

    If D mixes samples (batch norm) the gradient is that of the sum over the batch, as usual.
    """

    name = "r1"
    side = Side.D
    needs = frozenset({Can.DOUBLE_BACKWARD})

    def __init__(self, options: Options) -> None:
        self.options, self.interval = options, options.interval

    def __call__(self, context: PenaltyContext) -> Tensor:
        assert context.outputs.real is not None
        options = self.options
        gamma = cosine_decay(options.weight, options.final, options.final_kimg, context.feed.rows) * options.interval
        return gamma / 2 * squared_gradient(context, context.outputs.real.logits_B, context.feed.real_sample)
