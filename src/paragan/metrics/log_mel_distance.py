"""Mean absolute difference of log-mel spectrograms; lower is better, 0 is equal.

Source: the reconstruction error of HiFi-GAN (Kong et al. 2020, equation 5), which also trains it
(`penalties/log_mel`). Natural logarithm: 0.1 is 0.87 dB.
"""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.metric import Direction
from paragan.core.option_types import SpectrumOptions as Options
from paragan.metrics._audio import AudioMetric

__all__ = ["Metric", "Options"]


@dataclass(frozen=True)
class Metric(AudioMetric):
    """Distance >= 0, mean over channels, bands and frames, in nepers."""

    name = "log_mel_distance"
    direction = Direction.LOWER
    note = "Mean absolute difference of the log-mel spectrograms of generated and target audio."

    def compare(self, generated_B: Tensor, target_B: Tensor) -> Tensor:
        """Return the distance of each pair, float64 (B,)."""
        return (self.log_mel(generated_B) - self.log_mel(target_B)).abs().flatten(1).mean(1)
