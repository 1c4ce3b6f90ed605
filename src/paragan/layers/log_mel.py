"""Log-mel spectrograms of audio, as vocoders are trained on."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_BREAK_HZ = 1000.0  # the mel scale is linear below and logarithmic above
_HZ_PER_MEL = 200.0 / 3
_LOG_STEP = math.log(6.4) / 27
_FLOOR = 1e-5


class LogMel(nn.Module):
    """Log of the mel spectrogram of audio in [-1, 1]: magnitudes, natural logarithm, floor 1e-5.

    Hann window of `fft` samples every `hop` samples, reflected at both ends by (fft - hop) / 2, so
    that `n` samples have n // hop frames; triangular filters of equal area on the mel scale of
    Slaney's Auditory Toolbox. These are the conventions of HiFi-GAN (Kong et al. 2020, section 4.1)
    and BigVGAN. Differentiable. The buffers are not in the state dict.

    sample_rate, low_hz, high_hz: in Hz; high_hz: None for half of the sample rate.
    """

    window: Tensor
    filters: Tensor

    def __init__(
        self, sample_rate: int, fft: int, hop: int, bands: int, low_hz: float = 0.0, high_hz: float | None = None
    ) -> None:
        super().__init__()
        self.fft = fft
        self.hop = hop
        self.register_buffer("window", torch.hann_window(fft), persistent=False)
        filters = mel_filters(sample_rate, fft, bands, low_hz, high_hz or sample_rate / 2)
        self.register_buffer("filters", filters.float(), persistent=False)

    def forward(self, audio_B1T: Tensor) -> Tensor:
        """Return (B, bands, T // hop); audio: (B, 1, T) or (B, T)."""
        audio_BT = audio_B1T.squeeze(1) if audio_B1T.dim() == 3 else audio_B1T
        padding = (self.fft - self.hop) // 2
        padded = F.pad(audio_BT[:, None], (padding, padding), mode="reflect")[:, 0]
        window = self.window.to(padded.dtype)
        spectrum = torch.stft(padded, self.fft, self.hop, window=window, center=False, return_complex=True)
        magnitude = (torch.view_as_real(spectrum).square().sum(-1) + 1e-9).sqrt()
        return (self.filters.to(padded.dtype) @ magnitude).clamp(min=_FLOOR).log()


def mel_filters(sample_rate: int, fft: int, bands: int, low_hz: float, high_hz: float) -> Tensor:
    """Return triangular filters (bands, fft // 2 + 1), float64, each of area 2 in Hz."""
    frequencies = torch.linspace(0, sample_rate / 2, fft // 2 + 1, dtype=torch.float64)
    mels = torch.linspace(_to_mel(low_hz), _to_mel(high_hz), bands + 2, dtype=torch.float64)
    edges = _to_hz(mels)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    area = 2 / (edges[2:] - edges[:-2])
    return torch.minimum(rising, falling).clamp(min=0) * area[:, None]


def _to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz / _HZ_PER_MEL
    return _BREAK_HZ / _HZ_PER_MEL + math.log(hz / _BREAK_HZ) / _LOG_STEP


def _to_hz(mels: Tensor) -> Tensor:
    at_break = _BREAK_HZ / _HZ_PER_MEL
    logarithmic = _BREAK_HZ * torch.exp(_LOG_STEP * (mels - at_break))
    return torch.where(mels < at_break, mels * _HZ_PER_MEL, logarithmic)
