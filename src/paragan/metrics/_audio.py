"""Base class of metrics that compare audio by its log-mel spectrogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs
from paragan.layers.log_mel import LogMel
from paragan.metrics._options import AudioOptions
from paragan.metrics.base.mean import PairMetric


@dataclass(frozen=True)
class AudioMetric(PairMetric):
    """A `PairMetric` of audio (B, 1, T) in [-1, 1]. spectrum: its settings."""

    needs = frozenset({Needs.PAIRS, Needs.AUDIO})
    spectrum: AudioOptions = AudioOptions()

    @classmethod
    def from_reference(cls, real: Any = None, options: AudioOptions | None = None) -> Self:
        """Return an empty metric; the reference is not used."""
        return cls(spectrum=options or AudioOptions())

    def protocol(self) -> dict[str, Any]:
        """Return the settings of spectrograms."""
        return dict(vars(self.spectrum))

    def log_mel(self, audio_B1T: Tensor) -> Tensor:
        """Return log-mel spectrograms (B, bands, T // hop), by the natural logarithm."""
        found = self.spectrum
        if audio_B1T.shape[-1] < found.fft:
            size = f"{audio_B1T.shape[-1]} samples are shorter than a window"
            raise ConfigError(f"evaluation.metrics: {self.name}: {size}, fft={found.fft}; use a smaller one")
        mel: Tensor = LogMel(found.sample_rate, found.fft, found.hop, found.bands)(audio_B1T)
        return mel
