"""WAV files in RUN/samples of the first samples, if they are audio: of the data, and generated."""

import io
import wave
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.event import Event
from paragan.core.files import atomic_write, create_subfolder
from paragan.core.option_types import Count
from paragan.report.sample_audio import MAX_AUDIO_BYTES
from paragan.writers._tracker import print_warning

_NUM_SAMPLES = 4  # that are written; a sheet has 8


@dataclass(frozen=True)
class Options:
    """Rate of the files."""

    sample_rate: Count | None = None
    """Samples of audio per second; null: the data's, else 8,000."""


class Writer:
    """Writer of `step-0000100-generated-1.wav`; the data, which stays the same, is `data-1.wav`."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._sample_rate = options.sample_rate or 8000
        self._folder = folder
        self._has_warned = False

    def write(self, event: Event) -> None:
        """Write the audio of an event, if it has any: tensors (B, 1 or 2, T) in [-1, 1]; say once what is no audio."""
        for row, samples_B in event.tensors.items():
            if samples_B.dim() != 3 or samples_B.shape[1] not in (1, 2):
                shape = "x".join(map(str, samples_B.shape[1:]))
                self._warn(f"{row} of {shape} is not audio of 1xN or 2xN samples; it is not written")
                continue
            create_subfolder(self._folder, "samples")
            prefix = "" if row == "data" else f"step-{event.step:07d}-"
            for number, sample_CT in enumerate(samples_B[:_NUM_SAMPLES], 1):
                path = self._folder / "samples" / f"{prefix}{row}-{number}.wav"
                with atomic_write(path) as file:
                    file.write(to_wave(sample_CT, self._sample_rate))
                if path.stat().st_size > MAX_AUDIO_BYTES:
                    self._warn(f"{path.name} is larger than {MAX_AUDIO_BYTES:,} bytes; the report does not play it")

    def close(self) -> None:
        """Say that nothing was written in the whole run, if so."""
        if not any(self._folder.glob("samples/*.wav")):
            self._warn("the run has no samples of audio, 1xN or 2xN with N of at least 128; nothing is written")

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            print_warning("audio", problem)
            self._has_warned = True


def to_wave(audio_CT: Tensor, sample_rate: int) -> bytes:
    """Return audio (1 or 2, T) in [-1, 1] as a WAV file of 16 bit; louder values are clipped. sample_rate: in Hz."""
    clipped = audio_CT.detach().float().nan_to_num().clamp(-1, 1)
    samples = (clipped * 32767).round().to(torch.int16).cpu()
    content = io.BytesIO()
    with wave.open(content, "wb") as wav_file:
        wav_file.setnchannels(len(audio_CT))
        wav_file.setsampwidth(2)
        wav_file.setframerate(sample_rate)
        wav_file.writeframes(samples.T.numpy().astype("<i2").tobytes())
    return content.getvalue()
