"""Consistency regularisation: equal logits for an image and its flipped and shifted version.

On real images it is CR (Zhang et al. 2020, "Consistency Regularization for GANs", equation 2); on fakes as well it is
bCR (Zhao et al. 2021, "Improved Consistency Regularization for GANs", section 2.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import protocols, rng
from paragan.core.fakes import discriminate_both
from paragan.core.outputs import DiscriminatorOutput, mean_per_sample, sum_of
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side, TurnInputs
from paragan.core.weight_schedule import Weight, weight_at
from paragan.layers.shift import shift_images
from paragan.penalties._options import PenaltyOptions


@dataclass(frozen=True)
class Options(PenaltyOptions):
    """Weights of the consistency term."""

    weight: Weight = 10.0
    """Weight on real images: CR's lambda."""
    fake_weight: Weight = 0.0
    """Weight on G's images; bCR uses 10 for both."""


class Penalty(protocols.Penalty):
    """Squared difference of D's logits of x and T(x), per sample; patch logits count as their mean.

    T flips an image with probability 1/2 and shifts it by up to an eighth of its side. Costs one
    more forward of D on real images, and on fakes if they have a weight. D(x) is the logit of the
    loss: with `augment`, of the augmented image.
    """

    name = "consistency"
    side = Side.D
    needs_images = True

    def __init__(self, options: Options) -> None:
        self.weights = [options.weight]
        if options.fake_weight:
            self.weights.append(options.fake_weight)

    def __call__(self, context: PenaltyContext) -> Tensor:
        feed = context.feed
        outputs = context.outputs
        assert outputs.real is not None
        real = _transformed(feed.real_inputs, feed, "real")
        if len(self.weights) == 1:
            pairs = [(outputs.real, DiscriminatorOutput.of(context.network(*real)))]
        else:
            fake = _transformed((outputs.images, *feed.fake_conditions), feed, "fake")
            transformed = discriminate_both(context.network, real, fake)
            pairs = list(zip((outputs.real, outputs.fake), transformed, strict=True))
        weighted = zip(self.weights, pairs, strict=True)
        return sum_of([weight_at(weight, feed.rows) * _squared_difference(*pair) for weight, pair in weighted])


def _squared_difference(a: DiscriminatorOutput, b: DiscriminatorOutput) -> Tensor:
    """Return the squared difference of the logits per sample, added over discriminators."""
    pairs = [(member.logits_B, b.by_name[name].logits_B) for name, member in a.by_name.items()]
    return sum_of([(mean_per_sample(x) - mean_per_sample(y)).square() for x, y in pairs])


def flipped_and_shifted(x_BCHW: Tensor, draws_B3: Tensor) -> Tensor:
    """Flip and shift images. draws_B3: uniform in [0, 1)."""
    flipped = torch.where(draws_B3[:, 0].view(-1, 1, 1, 1) < 0.5, x_BCHW.flip(3), x_BCHW)
    return shift_images(flipped, draws_B3[:, 1:])


def _transformed(inputs: Sequence[Tensor | None], feed: TurnInputs, kind: str) -> tuple[Tensor | None, ...]:
    """Return flipped and shifted images, also those that are conditions, by the same draws, and labels, detached."""
    assert inputs[0] is not None
    draws_B3 = rng.uniform(feed.seed, f"consistency/{kind}", feed.rows, (3,))
    draws_B3 = draws_B3.to(inputs[0].device, non_blocking=True)
    return tuple(flipped_and_shifted(x.detach(), draws_B3) if x is not None and x.dim() == 4 else x for x in inputs)
