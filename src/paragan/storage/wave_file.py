"""Audio as WAV files: 16 bit, one channel."""

from __future__ import annotations

import wave
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.files import atomic_write


def save_wave(audio_T: Tensor, path: Path, sample_rate: int) -> None:
    """Write audio in [-1, 1], (T,), atomically; louder values are clipped. sample_rate: in Hz."""
    clipped = audio_T.detach().float().nan_to_num().clamp(-1, 1)
    samples = (clipped * 32767).round().to(torch.int16).cpu()
    with atomic_write(path) as file, wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(sample_rate)
        written.writeframes(samples.numpy().astype("<i2").tobytes())
