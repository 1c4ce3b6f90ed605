"""Mean absolute difference of log-mel spectrograms (Kong et al. 2020, HiFi-GAN, equation 5)."""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.option_types import SpectrumOptions
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.layers.log_mel import LogMel
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(SpectrumOptions, PenaltyOptions):
    """Weight of the distance of spectrograms, and how these are computed."""

    weight: Weight = 45.0
    """Weight of the term in the loss; the paper's lambda."""


class Penalty(OptionsPenalty):
    """Mean |mel(fake) - mel(real)| per sample, of generated audio and the audio of the batch."""

    name = "log_mel"
    side = Side.G
    needs_named_tensors = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.mel = LogMel.of(options)

    def __call__(self, context: PenaltyContext) -> Tensor:
        fake = context.outputs.images
        if fake.dim() != 3 or fake.shape[1] not in (1, 2):
            shape = "x".join(map(str, fake.shape[1:]))
            raise ConfigError(f"penalty log_mel needs audio of 1xN or 2xN samples, not {shape}; leave it out")
        mel = self.mel.to(fake.device)
        difference = mel(fake) - mel(context.feed.real_sample.to(fake.dtype))
        return self.weight_at(context.feed.rows) * difference.abs().flatten(1).mean(1)
