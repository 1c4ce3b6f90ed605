"""Gradient penalty (Gulrajani et al. 2017, "Improved Training of Wasserstein GANs", equation 3).

weight * (|grad D(x^)| - 1)^2 with x^ = e x + (1 - e) G(z), one e ~ U[0, 1] per sample, drawn by row
of the global batch: the same on any number of ranks and micro-batches.
"""

from dataclasses import dataclass

from torch import Tensor

from paragan.core import rng
from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput, mean_per_sample, sum_of
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import LazyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(LazyOptions):
    """Weight and period of WGAN-GP's penalty."""

    weight: Weight = 10.0
    """Weight of the term in the loss: the paper's lambda."""


class Penalty(OptionsPenalty):
    """WGAN-GP's penalty, at the cost of one more forward of D on x^ with the real labels.

    With `augment` the slope is that of D(T(x^)), T having the draws of the real images: D sees no others. Patch
    logits count as their mean; penalties of several discriminators are added. A D that mixes samples has no gradient
    per sample and raises `ConfigError` (the paper, section 4: no batch norm in D).
    """

    name = "gradient_penalty"
    side = Side.D
    needs = frozenset({Capability.DOUBLE_BACKWARD})
    per_sample = True

    def __call__(self, context: PenaltyContext) -> Tensor:
        if context.network.mixes:
            raise ConfigError(
                "penalty gradient_penalty does not support a discriminator with batch norm; "
                "choose another norm (model.d_norm=spectral) or the penalty r1"
            )
        x = _interpolated(context).requires_grad_()
        inputs = (context.augmented(x, "real"), *context.feed.real_inputs[1:])
        output = DiscriminatorOutput.of(context.network(*inputs))
        logits = [mean_per_sample(member.logits_B) for member in output.by_name.values()]
        gradients = [context.input_gradient(logits_B, x) for logits_B in logits]
        # torch's norm has slope 0, not NaN, at 0
        norms = [gradient.flatten(1).norm(dim=1) for gradient in gradients]
        return self.weight_at(context.feed.rows) * sum_of([(norm_B - 1).square() for norm_B in norms])


def _interpolated(context: PenaltyContext) -> Tensor:
    feed = context.feed
    real = feed.real_sample.detach()
    fake = context.outputs.images.detach()
    share = rng.uniform(feed.seed, "gradient_penalty", feed.rows, (1,) * (real.dim() - 1))
    return fake.to(real.dtype).lerp(real, share.to(real.device, real.dtype, non_blocking=True))
