"""Flow matching: the loss of a rectified flow (Liu et al. 2022; Lipman et al. 2023, equation 23).

|v((1 - t) x + t n, t) - (n - x)|^2 for real images x, noise n and uniform times t. With
`adversarial.weight=0` it trains G alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.penalties._options import PenaltyOptions
from paragan.penalties._velocity import velocity_network
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(PenaltyOptions):
    """Weight of flow matching. Needs a generator of velocities, `flow_unet`."""


class Penalty(OptionsPenalty):
    """Mean squared error of the velocity at one random time per real sample; G is called on no latent."""

    name = "flow_matching"
    needs_images = True
    side = Side.G
    uses_outputs = False

    def __call__(self, context: PenaltyContext) -> Tensor:
        feed = context.feed
        velocity_network(context.network.module, self.name)
        if feed.real is None or feed.sample_name not in feed.real.tensors:
            raise ConfigError(
                "penalty flow_matching needs real samples in G's turn, which this scheme does not read; use scheme "
                "synchronous"
            )
        x = feed.real_sample
        t_B111 = context.uniform(f"{self.name}/time", x[:, :1, :1, :1])
        noise = context.normal(f"{self.name}/noise", x)
        x_t = torch.lerp(x, noise, t_B111)
        error = context.network(x_t.flatten(1), feed.real.label, t_B111.flatten()) - (noise - x)
        return self.weight_at(feed.rows) * error.square().flatten(1).mean(1)
