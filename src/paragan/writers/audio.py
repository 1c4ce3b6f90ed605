"""WAV files in RUN/samples of the first samples, if they are audio: of the data, and generated."""

from __future__ import annotations

import wave
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.event import Event
from paragan.core.files import atomic_write, create_subfolder
from paragan.core.option_types import Count

_NUM_SAMPLES = 4  # that are written; a sheet has 8


@dataclass(frozen=True)
class Options:
    """Rate of the files."""

    sample_rate: Count = 8000
    """Samples of audio per second."""


class Writer:
    """Writer of `step-0000100-generated-1.wav`; the data, which stays the same, is `data-1.wav`."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._options = options
        self._folder = folder

    def write(self, event: Event) -> None:
        """Write the audio of an event, if it has any: tensors (B, 1 or 2, T) in [-1, 1]."""
        for row, samples_B in event.tensors.items():
            if samples_B.dim() != 3 or samples_B.shape[1] not in (1, 2):
                continue
            create_subfolder(self._folder, "samples")
            start = "" if row == "data" else f"step-{event.step:07d}-"
            for number, sample_CT in enumerate(samples_B[:_NUM_SAMPLES], 1):
                path = self._folder / "samples" / f"{start}{row}-{number}.wav"
                _save_wave(sample_CT, path, self._options.sample_rate)

    def close(self) -> None:
        """Do nothing: no resources are open."""


def _save_wave(audio_CT: Tensor, path: Path, sample_rate: int) -> None:
    """Write audio (1 or 2, T) in [-1, 1] as 16 bit, atomically; louder values are clipped. sample_rate: in Hz."""
    clipped = audio_CT.detach().float().nan_to_num().clamp(-1, 1)
    samples = (clipped * 32767).round().to(torch.int16).cpu()
    with atomic_write(path) as file, wave.open(file, "wb") as written:
        written.setnchannels(len(audio_CT))
        written.setsampwidth(2)
        written.setframerate(sample_rate)
        written.writeframes(samples.T.numpy().astype("<i2").tobytes())
