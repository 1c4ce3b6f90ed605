"""Mel-cepstral distortion in dB, as the mean over frames; lower is better, 0 is equal.

Source: R. Kubichek, "Mel-cepstral distance measure for objective speech quality assessment", IEEE
PACRIM 1993: 10 / ln 10 · sqrt(2 · sum over d of (c_d - c'_d)^2), for d = 1 to 13; c_0, the loudness,
is left out. The cepstrum is the cosine transform of the log-mel spectrogram, log mel(m) = c_0 + sum
over d of c_d cos(pi d (m + 1/2) / bands). Frames are compared one by one, without time warping.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction
from paragan.core.option_types import SpectrumOptions as Options
from paragan.metrics._audio import AudioMetric

__all__ = ["Metric", "Options"]

_COEFFICIENTS = 13
_DB_PER_NEPER = 10 / math.log(10)


@dataclass(frozen=True)
class Metric(AudioMetric):
    """Distortion >= 0, mean over channels and frames, in dB."""

    name = "mel_cepstral_distortion"
    direction = Direction.LOWER
    note = "Mel-cepstral distortion of generated against target audio, in decibels."

    def compare(self, generated_B: Tensor, target_B: Tensor) -> Tensor:
        """Return the distortion of each pair of audio (B, C, T) in dB, float64 (B,)."""
        difference_BCMF = self.log_mel(generated_B) - self.log_mel(target_B)
        n_mels = difference_BCMF.shape[2]
        if n_mels <= _COEFFICIENTS:
            raise ConfigError(
                f"evaluation.metrics: mel_cepstral_distortion: n_mels={n_mels} is too few for {_COEFFICIENTS} "
                f"coefficients; use at least {_COEFFICIENTS + 1}"
            )
        cepstrum_BCDF = _cosines(n_mels) @ difference_BCMF
        return _DB_PER_NEPER * (2 * cepstrum_BCDF.square().sum(2)).sqrt().flatten(1).mean(1)


def _cosines(bands: int) -> Tensor:
    """Return the matrix of coefficients 1 to 13 of the cosine transform, float64 (13, bands)."""
    orders = torch.arange(1, _COEFFICIENTS + 1, dtype=torch.float64)
    places = (torch.arange(bands, dtype=torch.float64) + 0.5) / bands
    return 2 / bands * (math.pi * orders[:, None] * places).cos()
