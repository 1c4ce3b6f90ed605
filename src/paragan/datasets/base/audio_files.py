"""Audio files: their headers, and parts of them at another sample rate.

libsndfile reads them (package soundfile), libsoxr resamples (package soxr). What libsndfile cannot read, and what
does not state its length, is read by ffmpeg, from the start: only local files, in formats of `_DEMUXERS`, and with a
time-out.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import ConfigError, DataError
from paragan.core.printable import counted, to_printable

_BY_LIBSNDFILE = b"wav wave w64 rf64 flac ogg oga opus mp3 aif aiff aifc au snd caf voc sph".split()
_BY_FFMPEG = b"m4a m4b aac wma webm mka amr ac3 ape wv tta".split()
ENDINGS = tuple(b"." + ending for ending in (*_BY_LIBSNDFILE, *_BY_FFMPEG))
_DEMUXERS = "aac,ac3,aiff,amr,ape,asf,au,caf,flac,matroska,webm,mov,mp4,m4a,mp3,ogg,tta,voc,w64,wav,wv"
_MAX_RATE = 768_000
_MAX_CHANNELS = 64
_MAX_SAMPLES = 1 << 40  # a file that does not state its length seems to have more
_WARM_UP = 1 << 14  # samples to decode before those that are read: after a seek, mp3 and Vorbis begin with wrong ones
_TAPS = 256  # of the resampler on each side, in samples of the lower rate
_TIMEOUT_S = 300  # ffmpeg decodes hours of audio in this time
_MAX_MESSAGE = 200
_MAX_VALUE = 16.0  # beyond it, floats are whole numbers that were not scaled
_HINT = "pass data.damaged=skip to exclude damaged files"
_MP3_START = 256  # bytes of the first frame, where the number of frames is stated

File = bytes | io.BytesIO  # a path, or the content of a member of an archive


@dataclass(frozen=True, kw_only=True)
class AudioInfo:
    """Samples per channel, sample rate in Hz and channels of a file, and whether ffmpeg reads it."""

    num_samples: int
    sample_rate: int
    channels: int
    by_ffmpeg: bool = False

    def length_at(self, sample_rate: int) -> int:
        """Return the number of samples at another rate."""
        return self.num_samples * sample_rate // self.sample_rate


def require_packages() -> None:
    """Raise `ConfigError` if a package of the extra `audio` is missing."""
    try:
        import soundfile  # noqa: F401
        import soxr  # noqa: F401
    except (ImportError, OSError) as error:  # OSError: without libsndfile
        raise ConfigError(
            f"data: audio files need the packages soundfile and soxr ({to_printable(str(error))}); "
            "install them with: pip install 'paragan[audio]'"
        ) from None


def read_info(file: File, where: str) -> AudioInfo:
    """Return what the header of a file states. where: its name in messages. Raises `DataError` for other files."""
    import soundfile

    try:
        with soundfile.SoundFile(file) as opened:
            info = AudioInfo(num_samples=opened.frames, sample_rate=opened.samplerate, channels=opened.channels)
            is_stated = info.num_samples < _MAX_SAMPLES and (opened.format != "MP3" or _states_length(file))
        problem = "it does not state its length"
    except (soundfile.SoundFileError, OSError) as error:
        is_stated = False
        problem = _one_line(str(error).rpartition(": ")[2])
    if not is_stated:
        info = _probe(file, where, problem)
    is_possible = 0 < info.sample_rate <= _MAX_RATE and 0 < info.channels <= _MAX_CHANNELS
    if not (is_possible and 0 < info.num_samples < _MAX_SAMPLES):
        raise DataError(
            f"{where}: {info.num_samples:,} samples of {counted(info.channels, 'channel')} at {info.sample_rate:,} Hz "
            "cannot be read",
            _HINT,
        )
    return info


def read_part(
    file: File, info: AudioInfo, where: str, *, start: int, count: int, sample_rate: int, channels: int
) -> NDArray[np.float32]:
    """Return a part of a file at a sample rate in Hz, float32 (channels, count), or less at its end.

    It equals that of the whole file resampled; only what it depends on is read. start: first sample at this
    rate. channels: 1, the mean of those of the file, or 2, which one channel fills twice. Raises `DataError`
    for a damaged file, for NaN, and for values far outside of [-1, 1].
    """
    first, end, skipped = _needed(info, start, count, sample_rate)
    read = _read_by_ffmpeg if info.by_ffmpeg else _read
    audio_TC = read(file, info, where, first, end - first)
    if len(audio_TC) != end - first:
        raise DataError(f"{where}: damaged audio (it ends after {counted(first + len(audio_TC), 'sample')})", _HINT)
    if not (peak := np.abs(audio_TC).max(initial=0)) <= _MAX_VALUE:
        raise DataError(f"{where}: a value of {peak:g}, but audio is in [-1, 1]", f"scale it, or {_HINT}")
    if channels == 1:
        audio_TC = audio_TC.mean(1, keepdims=True)
    elif info.channels == 1:
        audio_TC = audio_TC.repeat(2, axis=1)
    if info.sample_rate != sample_rate:
        import soxr

        audio_TC = soxr.resample(audio_TC, info.sample_rate, sample_rate)
    return np.ascontiguousarray(audio_TC[skipped : skipped + count].T)


def _needed(info: AudioInfo, start: int, count: int, sample_rate: int) -> tuple[int, int, int]:
    """Return the first and the end of the file's samples that a part depends on, and what to skip once resampled."""
    if info.sample_rate == sample_rate:
        return start, min(info.num_samples, start + count), 0
    common = math.gcd(info.sample_rate, sample_rate)
    up = sample_rate // common
    down = info.sample_rate // common
    margin = _TAPS * math.ceil(max(1, down / up))
    # sample block * down of the file is sample block * up of the part
    block = max(0, start * down // up - margin) // down
    end = math.ceil((start + count) * down / up) + margin
    return block * down, min(info.num_samples, end), start - block * up


def _read(file: File, info: AudioInfo, where: str, start: int, count: int) -> NDArray[np.float32]:
    import soundfile

    if isinstance(file, io.BytesIO):
        file.seek(0)
    try:
        with soundfile.SoundFile(file) as opened:
            first = max(0, start - _WARM_UP)
            if first:
                opened.seek(first)
            audio_TC: NDArray[np.float32] = opened.read(start + count - first, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise DataError(f"{where}: damaged audio ({_one_line(str(error))})", _HINT) from None
    return audio_TC[start - first :]


def _read_by_ffmpeg(file: File, info: AudioInfo, where: str, start: int, count: int) -> NDArray[np.float32]:
    # by counting samples from the start: seeks, and times in the file, miss by thousands of samples in most formats
    part = ["-map", "0:a:0", "-af", f"atrim=start_sample={start}:end_sample={start + count}"]
    kind = ["-ac", str(info.channels), "-ar", str(info.sample_rate), "-f", "f32le", "-"]
    decoded = _run("ffmpeg", ["-nostdin"], file, where, [*part, *kind]).stdout
    num_whole = len(decoded) // (4 * info.channels)  # a file may end within a sample
    return np.frombuffer(decoded, "<f4", num_whole * info.channels).reshape(-1, info.channels)


def _probe(file: File, where: str, problem: str) -> AudioInfo:
    """Return what ffmpeg states of a file, and the number of samples that it decodes."""
    where = f"{where}: libsndfile cannot read it ({problem})"
    if not isinstance(file, bytes):
        raise DataError(f"{where}, and ffmpeg is not used on it here; convert it to wav or flac")
    entries = ["-select_streams", "a:0", "-show_entries", "stream=sample_rate,channels", "-of", "json"]
    streams = json.loads(_run("ffprobe", entries, file, where).stdout).get("streams")
    if not streams:
        raise DataError(f"{where}, and ffmpeg finds no audio in it")
    count = ["-map", "0:a:0", "-af", "astats=measure_perchannel=none:measure_overall=Number_of_samples"]
    report = _run("ffmpeg", ["-nostdin", "-nostats"], file, where, [*count, "-f", "null", "-"], "info").stderr
    numbers: list[bytes] = re.findall(rb"Number of samples: (\d+)", report)
    return AudioInfo(
        num_samples=int(numbers[-1]) if numbers else 0,
        sample_rate=int(streams[0].get("sample_rate", 0)),
        channels=int(streams[0].get("channels", 0)),
        by_ffmpeg=True,
    )


def _run(
    program: str, before: list[str], file: Any, where: str, after: Sequence[str] = (), level: str = "error"
) -> subprocess.CompletedProcess[bytes]:
    """Run ffmpeg or ffprobe on a file. before, after: arguments around it. level: of its messages."""
    source = ["-protocol_whitelist", "file", "-format_whitelist", _DEMUXERS, "-i", b"file:" + os.path.abspath(file)]
    command = [program, "-v", level, "-hide_banner", *before, *source, *after]
    try:
        completed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)
    except FileNotFoundError:
        raise DataError(f"{where}; install ffmpeg to read it, or convert it to wav or flac") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"{where}: ffmpeg takes longer than {_TIMEOUT_S} s; convert the file to flac") from None
    if completed.returncode:
        raise DataError(f"{where}: damaged audio ({_one_line(completed.stderr.decode('utf-8', 'replace'))})", _HINT)
    return completed


def _states_length(file: File) -> bool:
    """Return whether an mp3 file states its number of frames; without it, libsndfile guesses from the first."""
    with open(file, "rb") if isinstance(file, bytes) else io.BytesIO(file.getbuffer()) as content:
        tag = content.read(10)
        if tag.startswith(b"ID3"):  # its size has 7 bits in each byte
            content.seek(tag[6] << 21 | tag[7] << 14 | tag[8] << 7 | tag[9], os.SEEK_CUR)
        frame = tag + content.read(_MP3_START)
    return any(mark in frame for mark in (b"Xing", b"Info", b"VBRI"))


def _one_line(text: str) -> str:
    return to_printable(" ".join(text.split())[:_MAX_MESSAGE])
