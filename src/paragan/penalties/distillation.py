"""Score distillation from a frozen teacher (Sauer et al. 2023, arXiv 2311.17042, "Adversarial Diffusion Distillation").

w t^0 |G(z) - teacher(x_t)|^2 for x_t, G's image noised at a random time, without its graph, and the image that the
teacher predicts from it, x_t - t v(x_t, t). The time weights of the paper are left out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.protocols import PenaltyContext
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import TeacherOptions
from paragan.penalties._velocity import TaughtPenalty

_EARLIEST = 0.1


@dataclass(frozen=True)
class Options(TeacherOptions):
    """Teacher and weight. Needs a generator of velocities, `flow_unet`, of the teacher's sizes."""

    weight: Weight = 2.5
    """Weight of the term in the loss."""


class Penalty(TaughtPenalty):
    """Mean squared distance of G's image to the teacher's, per sample."""

    name = "distillation"
    needs_images = True

    def __call__(self, context: PenaltyContext) -> Tensor:
        feed = context.feed
        images = context.outputs.images
        t_B111 = _EARLIEST + (1 - _EARLIEST) * context.uniform(f"{self.name}/time", images[:, :1, :1, :1])
        with torch.no_grad():
            x_t = torch.lerp(images, context.normal(f"{self.name}/noise", images), t_B111)
            target = x_t - t_B111 * self.teacher.velocity(context.network.module, x_t, feed.label, t_B111.flatten())
        return self.weight_at(feed.rows) * (images - target).square().flatten(1).mean(1)
