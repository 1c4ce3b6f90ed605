"""Synthesised speech-like audio with its mel spectrogram, without a download.

Each utterance is a random sequence of vowels and fricatives at 8 kHz. A vowel has the harmonics of a
gliding pitch, shaped by three resonances (formants) at the mean frequencies of Peterson and Barney
1952, "Control methods used in a study of the vowels", table II (men), scaled by the speaker; a
fricative is noise in a band. It is no language, but it has what a vocoder must learn: pitch,
harmonics, formant glides, noise and pauses. Source: computed here; no recording is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core import rng
from paragan.core.option_types import Interval
from paragan.core.source import Source
from paragan.datasets import audio
from paragan.datasets._options import AudioOptions
from paragan.datasets.audio import audio_format as audio_format
from paragan.datasets.base.in_memory import compute_fingerprint

SAMPLE_RATE = 8_000
HOP = 64
_SAMPLES = SAMPLE_RATE  # of an utterance, 1 s
_HELD_OUT = 40
_HARMONICS = 40
_FORMANTS_HZ = torch.tensor(
    [
        *((270, 2290, 3010), (390, 1990, 2550), (530, 1840, 2480), (660, 1720, 2410), (730, 1090, 2440)),
        *((570, 840, 2410), (440, 1020, 2240), (300, 870, 2240), (640, 1190, 2390), (490, 1350, 1690)),
    ],
    dtype=torch.float64,
)
_BANDWIDTHS_HZ = torch.tensor([60.0, 90.0, 150.0], dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Options(AudioOptions):
    """Number and length of the training samples; with a path, those of the data set `audio`."""

    utterances: Annotated[int, Interval(ge=1, le=100_000)] = 400
    """Training utterances of 1 s; 10 ms of computing each at the start. 40 more are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_other = {
            "sample_rate": self.sample_rate != 8000,
            "channels": self.channels != 1,
            "segment": self.segment > 8000,
        }
        names = [name for name, other in is_other.items() if other]
        if names and not self.path:
            named = ", ".join(f"{name}={getattr(self, name)}" for name in names)
            raise ValueError(
                f"{named}, but without a path speech is synthesised: 8 kHz, 1 channel, 8,000 samples; pass "
                f"data.path=DIR, or leave {'it' if len(names) == 1 else 'them'} out"
            )


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return segments `audio` (1, segment) in [-1, 1], and `mel` (n_mels, segment / hop).

    A training segment begins at a random place of its utterance, a held-out one at its start. With a path
    these are segments of the files there, as of the data set `audio`.
    """
    if options.path:
        return audio.source(options, split)
    return _Utterances(options, split)


class _Utterances(audio.Segments):
    """Segments of `count` utterances from number `first` on, in memory from the first fetch on."""

    def __init__(self, options: Options, split: str) -> None:
        super().__init__(options, is_random=split == "train")
        self._first, self._count = (_HELD_OUT, options.utterances) if split == "train" else (0, _HELD_OUT)
        self.fingerprint = compute_fingerprint("speech", options, self._first)

    def __len__(self) -> int:
        return self._count

    def _segment(self, row: int, key: int | None) -> Tensor:
        start = 0 if key is None else key % (_SAMPLES - self._options.segment + 1)
        return _utterances(self._first, self._count)[row, None, start : start + self._options.segment]


@cache
def _utterances(first: int, count: int) -> Tensor:
    """Return utterances number first, first + 1, …, (count, T), float32."""
    return torch.stack([utterance(number) for number in range(first, first + count)])


def utterance(number: int) -> Tensor:
    """Return one second of audio, (8000,), float32 in (-1, 1); equal for equal numbers."""
    draws = rng.generator("speech", number)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=draws, dtype=torch.float64)

    phones = 8
    vowels = torch.randint(len(_FORMANTS_HZ), (phones,), generator=draws)
    is_voiced = torch.rand(phones, generator=draws) < 0.75
    loudness = uniform(0.3, 1.0, phones) * (torch.rand(phones, generator=draws) < 0.9)
    edges = uniform(0.5, 1.5, phones).cumsum(0)
    phone_T = torch.searchsorted(edges / edges[-1], torch.arange(_SAMPLES, dtype=torch.float64) / _SAMPLES)
    formants_T3 = _smooth((_FORMANTS_HZ[vowels] * uniform(0.95, 1.2))[phone_T])
    voiced_T1 = _smooth((loudness * is_voiced)[phone_T][:, None])
    noisy_T1 = _smooth((loudness * ~is_voiced)[phone_T][:, None])
    pitch_T = _smooth(uniform(0.85, 1.15, phones)[phone_T][:, None])[:, 0] * uniform(90, 220)
    pitch_T = pitch_T * torch.linspace(1.1, 0.85, _SAMPLES, dtype=torch.float64)  # falls to the end
    voice_T = _voice(pitch_T, formants_T3)
    noise_T = _fricative(torch.randn(_SAMPLES, generator=draws, dtype=torch.float64), float(uniform(0.0, 0.9)))
    audio_T = voiced_T1[:, 0] * voice_T + 0.4 * noisy_T1[:, 0] * noise_T
    return (0.4 * audio_T).tanh().float()


def _voice(pitch_T: Tensor, formants_T3: Tensor) -> Tensor:
    """Return the sum of the harmonics of a pitch, each as loud as the resonances let it be; one gain for each hop."""
    harmonics_K = torch.arange(1, _HARMONICS + 1, dtype=torch.float64)
    hz_FK = pitch_T[::HOP, None] * harmonics_K
    distance_FK3 = (hz_FK[..., None] - formants_T3[::HOP, None]) / _BANDWIDTHS_HZ
    gain_FK = (1 / (1 + distance_FK3.square())).sqrt().sum(-1) / harmonics_K.sqrt()
    gain_FK = gain_FK * (hz_FK < SAMPLE_RATE / 2)
    gain_KT = F.interpolate(gain_FK.T[None].float(), size=len(pitch_T), mode="linear")[0]
    turns_T = (pitch_T / SAMPLE_RATE).cumsum(0)
    phase_KT = 2 * torch.pi * (harmonics_K[:, None] * turns_T).frac().float()
    voice_T = (gain_KT * phase_KT.sin()).sum(0).double()
    return voice_T / voice_T.square().mean().sqrt().clamp(min=1e-3)


def _fricative(noise_T: Tensor, coefficient: float) -> Tensor:
    """Return noise that is stronger at high frequencies, of mean square 1."""
    high_T = noise_T - coefficient * noise_T.roll(1)
    return high_T / high_T.square().mean().sqrt()


def _smooth(values_TC: Tensor, width: int = 241) -> Tensor:
    """Return the moving mean over 30 ms: phones glide into one another."""
    padded = F.pad(values_TC.T[None], (width // 2 + 1, width // 2), mode="replicate")[0]
    sums = padded.cumsum(1)
    return (sums[:, width:] - sums[:, :-width]).T / width
