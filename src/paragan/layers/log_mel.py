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

    Hann window of `win` samples in the middle of frames of `n_fft` samples, every `hop` samples; reflected at both
    ends by (n_fft - hop) / 2, so that `n` samples have n // hop frames. Triangular filters of equal area on the mel
    scale of Slaney's Auditory Toolbox, or of HTK. These are the conventions of HiFi-GAN (Kong et al. 2020, section
    4.1) and BigVGAN. Differentiable. The buffers are not in the state dict.

    sample_rate, fmin, fmax: in Hz; fmax: None for half of the sample rate. win: None for n_fft.
    """

    window: Tensor
    filters: Tensor

    def __init__(
        self,
        sample_rate: int = 8000,
        n_fft: int = 256,
        hop: int = 64,
        n_mels: int = 40,
        fmin: float = 0.0,
        fmax: float | None = None,
        *,
        win: int | None = None,
        mel_scale: str = "slaney",
    ) -> None:
        super().__init__()
        self.n_fft = n_fft
        self.hop = hop
        self.n_mels = n_mels
        self.register_buffer("window", torch.hann_window(win or n_fft), persistent=False)
        filters = mel_filters(sample_rate, n_fft, n_mels, fmin, fmax or sample_rate / 2, mel_scale)
        self.register_buffer("filters", filters.float(), persistent=False)

    @classmethod
    def of(cls, options: object) -> LogMel:
        """Return the spectrogram of options with these names; those that are None have the defaults."""
        names = ("sample_rate", "n_fft", "hop", "n_mels", "fmin", "fmax", "win", "mel_scale")
        values = {name: getattr(options, name, None) for name in names}
        return cls(**{name: value for name, value in values.items() if value is not None})

    def forward(self, audio_BCT: Tensor) -> Tensor:
        """Return (B, n_mels, T // hop) of audio (B, 1, T) or (B, T); of (B, 2, T) that of both channels, 2 n_mels."""
        channels = 1 if audio_BCT.dim() == 2 else audio_BCT.shape[1]
        audio_B1T = audio_BCT.reshape(-1, 1, audio_BCT.shape[-1])
        before = (self.n_fft - self.hop) // 2
        padded = F.pad(audio_B1T, (before, self.n_fft - self.hop - before), mode="reflect")[:, 0]
        window = self.window.to(padded.dtype)
        spectrum = torch.stft(
            padded, self.n_fft, self.hop, len(window), window=window, center=False, return_complex=True
        )
        magnitude = (torch.view_as_real(spectrum).square().sum(-1) + 1e-9).sqrt()
        mel: Tensor = (self.filters.to(padded.dtype) @ magnitude).clamp(min=_FLOOR).log()
        return mel.reshape(-1, channels * self.n_mels, mel.shape[-1])


def mel_filters(
    sample_rate: int, n_fft: int, n_mels: int, fmin: float, fmax: float, mel_scale: str = "slaney"
) -> Tensor:
    """Return triangular filters (n_mels, n_fft // 2 + 1), float64, each of area 2 in Hz. mel_scale: slaney or htk."""
    to_mel, to_hz = (_to_mel_htk, _to_hz_htk) if mel_scale == "htk" else (_to_mel, _to_hz)
    frequencies = torch.linspace(0, n_fft // 2 * sample_rate / n_fft, n_fft // 2 + 1, dtype=torch.float64)
    edges = to_hz(torch.linspace(to_mel(fmin), to_mel(fmax), n_mels + 2, dtype=torch.float64))
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


def _to_mel_htk(hz: float) -> float:
    return 2595 * math.log10(1 + hz / 700)


def _to_hz_htk(mels: Tensor) -> Tensor:
    return 700 * (10 ** (mels / 2595) - 1)
