"""Flow matching on G's images: the loss of DMD2's fake score (Yin et al. 2024, arXiv 2405.14867, section 3).

|v((1 - t) x + t n, t) - (n - x)|^2 for images x of G, noise n and uniform times t, as `flow_matching`
has it for real images.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.penalties._options import PenaltyOptions
from paragan.penalties._velocity import velocity_network
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(PenaltyOptions):
    """Weight of flow matching on fakes. Needs model `flow_unet` and the player `fake_score`."""


class Penalty(OptionsPenalty):
    """Mean squared error of the velocity at one random time per image of G; trains the player `fake_score`."""

    name = "fake_flow_matching"
    needs_images = True
    side = Side("fake_score")

    def __call__(self, context: PenaltyContext) -> Tensor:
        velocity_network(context.network.module, self.name)
        x = context.outputs.images
        t_B111 = context.uniform(f"{self.name}/time", x[:, :1, :1, :1])
        noise = context.normal(f"{self.name}/noise", x)
        x_t = torch.lerp(x, noise, t_B111)
        error = context.network(x_t.flatten(1), context.feed.label, t_B111.flatten()) - (noise - x)
        return self.weight_at(context.feed.rows) * error.square().flatten(1).mean(1)
