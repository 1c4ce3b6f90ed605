"""Base class of metrics that compare audio by its log-mel spectrogram."""

from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs
from paragan.core.option_types import SpectrumOptions
from paragan.layers.log_mel import LogMel
from paragan.metrics.base.mean import PairMetric


@dataclass(frozen=True)
class AudioMetric(PairMetric):
    """A `PairMetric` of audio (B, 1 or 2, T) in [-1, 1]. spectrum: its settings."""

    needs = frozenset({Needs.PAIRS, Needs.AUDIO})
    spectrum: SpectrumOptions = SpectrumOptions()

    @classmethod
    def from_reference(cls, real: Any = None, options: SpectrumOptions | None = None) -> Self:
        """Return an empty metric; the reference is not used."""
        return cls(spectrum=options or SpectrumOptions())

    def protocol(self) -> dict[str, Any]:
        """Return the settings of spectrograms."""
        return dict(vars(self.spectrum))

    def log_mel(self, audio_BCT: Tensor) -> Tensor:
        """Return log-mel spectrograms (B, C, n_mels, T // hop), by the natural logarithm; float64, as the audio."""
        log_mel = LogMel.of(self.spectrum)
        if audio_BCT.shape[-1] < log_mel.n_fft:
            raise ConfigError(
                f"evaluation.metrics: {self.name}: {audio_BCT.shape[-1]} samples are shorter than a frame, "
                f"n_fft={log_mel.n_fft}; use a smaller one"
            )
        mel: Tensor = log_mel(audio_BCT)  # (B, C * n_mels, T // hop)
        return mel.unflatten(1, (-1, log_mel.n_mels))
