"""WAV files in RUN/samples of the first samples, if they are audio: of the data, and generated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from paragan.core.event import Event
from paragan.core.files import create_subfolder
from paragan.core.option_types import Count, Interval


@dataclass(frozen=True)
class Options:
    """Rate and number of the files."""

    sample_rate: Count = 8000
    """Samples of audio per second."""
    num: Annotated[int, Interval(ge=1, le=8)] = 4
    """Samples that are written; a sheet has 8."""


class Writer:
    """Writer of `step-0000100-generated-1.wav`; the data, which stays the same, is `data-1.wav`."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._options = options
        self._folder = folder

    def write(self, event: Event) -> None:
        """Write the audio of an event, if it has any: tensors (B, 1, T) in [-1, 1]."""
        from paragan.storage.wave_file import save_wave

        for row, samples_B in event.tensors.items():
            if samples_B.dim() != 3 or samples_B.shape[1] != 1:
                continue
            create_subfolder(self._folder, "samples")
            start = "" if row == "data" else f"step-{event.step:07d}-"
            for number, sample_1T in enumerate(samples_B[: self._options.num], 1):
                path = self._folder / "samples" / f"{start}{row}-{number}.wav"
                save_wave(sample_1T[0], path, self._options.sample_rate)

    def close(self) -> None:
        """Do nothing: no resources are open."""
