"""Reconstruction of real images from D's maps (FastGAN, Liu et al. 2021, equations 3 and 4).

D becomes an encoder of what an image shows, and memorises a small data set less. Its decoders rebuild the
image from the last map, the small image from the small branch, and a quarter, drawn for each image, from
the same quarter of the map before the last. The distance is the mean absolute difference; the authors'
code has LPIPS, whose network and weights are not part of paragan.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput, mean_per_sample
from paragan.core.protocols import Network, PenaltyContext
from paragan.core.types import Side
from paragan.layers.quarters import take_quarter
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(PenaltyOptions):
    """Weight of the reconstruction of real images."""


class Penalty(OptionsPenalty):
    """Mean |decoded - image| per sample, of the whole image, the small one and a quarter, added.

    Of real images as D sees them: with `augment`, augmented. Costs one more forward of D on them. The
    target of each is the image, resized to what was decoded (nearest pixels).
    """

    name = "reconstruction"
    side = Side.D

    def __call__(self, context: PenaltyContext) -> Tensor:
        _check_decoders(context.network)
        image, *others = context.feed.real_inputs
        assert image is not None
        x_BCHW = context.augmented(image, "real")
        part_B = (4 * context.uniform("reconstruction", x_BCHW.flatten(1)[:, 0])).long()
        label_B = others[0] if others else None
        decoded = DiscriminatorOutput.of(context.network(x_BCHW, label_B, part_B)).layers
        return self.weight_at(context.feed.rows) * reconstruction_loss(decoded, x_BCHW, part_B)


def reconstruction_loss(decoded: Sequence[Tensor], x_BCHW: Tensor, part_B: Tensor) -> Tensor:
    """Return the summed distances per sample, (B,). decoded: of the image, the small image, and its quarter part_B."""
    targets = (x_BCHW, x_BCHW, take_quarter(x_BCHW, part_B))
    return torch.stack([_distance(*pair) for pair in zip(decoded, targets, strict=True)]).sum(0)


def _distance(decoded: Tensor, target: Tensor) -> Tensor:
    return mean_per_sample((decoded - F.interpolate(target, size=decoded.shape[2:])).abs())


def _check_decoders(network: Network) -> None:
    if not any(getattr(module, "reconstructs", False) for module in network.module.modules()):
        raise ConfigError(
            "penalty reconstruction needs a D with decoders; set model.name=fastgan, or leave the penalty out"
        )
