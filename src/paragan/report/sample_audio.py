"""Audio of the newest samples in the report, as the writer `audio` wrote it."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paragan.core.files import open_regular_file
from paragan.report.record import RecordEntry

_MAX_SAMPLES = 8
_MAX_BYTES = 1 << 20  # of a file


@dataclass(frozen=True)
class SampleAudio:
    """A sample of the data and the generated one, as data URIs; empty without a file."""

    number: int
    data: str
    generated: str


def read_audio(folder: Path, samples: Sequence[RecordEntry]) -> list[SampleAudio]:
    """Return the audio of the newest samples; empty if the run wrote none."""
    if not samples:
        return []
    start = f"step-{samples[-1].step:07d}-"
    found = []
    for number in range(1, _MAX_SAMPLES + 1):
        names = (f"data-{number}.wav", f"{start}generated-{number}.wav")
        both = SampleAudio(number, *(_uri(folder / "samples" / name) for name in names))
        if both.generated:
            found.append(both)
    return found


def _uri(path: Path) -> str:
    """Return a WAV file as data URI; empty if it is missing, too large, or no WAV file."""
    try:
        with open_regular_file(path) as file:
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                return ""
            content = file.read(_MAX_BYTES)
    except OSError:
        return ""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        return ""
    return "data:audio/wav;base64," + base64.b64encode(content).decode()
