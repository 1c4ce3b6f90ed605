"""Audio of a run's newest samples in its report."""

import base64
from collections.abc import Sequence
from pathlib import Path

from paragan.core.files import read_bytes
from paragan.report.chart import View
from paragan.report.record_values import RecordEntry

_MAX_AUDIO_SAMPLES = 8
MAX_AUDIO_BYTES = 1 << 20  # of a file


def read_audio(folder: Path, samples: Sequence[RecordEntry]) -> list[View]:
    """Return the audio of the newest samples, as the writer `audio` wrote it; empty if the run wrote none.

    Each has the number of the sample, the one of the data (empty without a file) and the generated one, as data URIs.
    """
    if not samples:
        return []
    start = f"step-{samples[-1].step:07d}-"
    pairs = []
    for number in range(1, _MAX_AUDIO_SAMPLES + 1):
        data = _wave_uri(folder / "samples" / f"data-{number}.wav")
        if generated := _wave_uri(folder / "samples" / f"{start}generated-{number}.wav"):
            pairs.append({"number": number, "data": data, "generated": generated})
    return pairs


def _wave_uri(path: Path) -> str:
    """Return a WAV file as data URI; empty if it is missing, too large, or no WAV file."""
    try:
        content = read_bytes(path, MAX_AUDIO_BYTES)
    except OSError:
        return ""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        return ""
    return "data:audio/wav;base64," + base64.b64encode(content).decode()
