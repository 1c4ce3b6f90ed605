"""Loss of a codebook (van den Oord et al. 2017, VQ-VAE, equation 3, its second and third term)."""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.option_types import NotNegative
from paragan.core.outputs import mean_per_sample
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(PenaltyOptions):
    """Weights of both directions."""

    commitment: NotNegative = 0.25
    """Weight of the term by which the encoder follows the codes; the paper's beta."""


class Penalty(OptionsPenalty):
    """`codebook` plus beta times `commitment`, which G returns in `GeneratorOutput.extra`, per sample.

    A codebook of moving averages has no loss of its own: then only `commitment` counts.
    """

    name = "codebook"
    side = Side.G
    needs_named_tensors = True
    options: Options

    def __call__(self, context: PenaltyContext) -> Tensor:
        extra = context.outputs.extra
        if "commitment" not in extra:
            raise ConfigError(
                "penalty codebook needs the tensor `commitment`, which G does not return in extra; use a model with a "
                "codebook, such as vqgan, or leave it out"
            )
        loss_B = self.options.commitment * mean_per_sample(extra["commitment"])
        if "codebook" in extra:
            loss_B = loss_B + mean_per_sample(extra["codebook"])
        return self.weight_at(context.feed.rows) * loss_B
