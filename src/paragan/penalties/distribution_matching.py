"""Distribution matching distillation (Yin et al. 2024, arXiv 2311.18828, equations 7 and 8; DMD2: arXiv 2405.14867).

The gradient at G's image x is (f - r) / mean |x - r|, where f and r are the clean images that the fake score and the
teacher predict from x with noise. The fake score is the player `fake_score`, with penalty `fake_flow_matching`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.protocols import PenaltyContext
from paragan.penalties._options import TeacherOptions
from paragan.penalties._velocity import TaughtPenalty

_EARLIEST = 0.02  # times, as in equation 8's t ~ U(0.02 T, 0.98 T)
_LATEST = 0.98


@dataclass(frozen=True, kw_only=True)
class Options(TeacherOptions):
    """Teacher and weight. Needs model `flow_unet` and the player `fake_score`."""


class Penalty(TaughtPenalty):
    """Half the mean squared distance to a fixed target, chosen so that its gradient is the one above."""

    name = "distribution_matching"
    needs_images = True
    players = ("fake_score",)

    def __call__(self, context: PenaltyContext) -> Tensor:
        x = context.outputs.images
        y_B = context.feed.label
        fake_score = context.players["fake_score"]
        with torch.no_grad():
            t_B111 = torch.lerp(
                x.new_full((), _EARLIEST),
                x.new_full((), _LATEST),
                context.uniform(f"{self.name}/time", x[:, :1, :1, :1]),
            )
            # x_t = (1 - t) x + t noise, and v = noise - x: the clean image is x_t - t v
            x_t = torch.lerp(x, context.normal(f"{self.name}/noise", x), t_B111)
            real = x_t - t_B111 * self.teacher.velocity(context.network.module, x_t, y_B, t_B111.flatten())
            v_fake = fake_score(x_t.flatten(1), y_B, t_B111.flatten())  # a generator of flow_unet, whose input is flat
            fake = x_t - t_B111 * v_fake
            # 0 where the teacher returns an image to the last bit: NaN, and the player skips the update
            size_B111 = (x - real).abs().mean((1, 2, 3), keepdim=True)
            target = x - (fake - real) / size_B111
        half = (x - target).square().flatten(1).mean(1) / 2
        return self.weight_at(context.feed.rows) * half
