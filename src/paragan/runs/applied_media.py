"""Files of images and audio as the tensors that a generator takes and makes."""

from __future__ import annotations

import io
import os

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.datasets.base.audio_files import ENDINGS, AudioPart, File, read_info, read_part, require_packages
from paragan.datasets.base.file_readers import FileReader, FolderReader
from paragan.datasets.base.whole_images import decode_whole
from paragan.export.application import Application
from paragan.export.sampled_images import SampledImages
from paragan.writers.audio import to_wave


def prepare_files(application: Application, files: FileReader) -> None:
    """Let a reader list audio, if the generator takes it; `ConfigError` where audio cannot be read or written."""
    if application.kind == "image":
        return
    require_packages()
    if application.audio is None:
        raise ConfigError("apply: the sample rate of this run's audio is not known; call paragan.load(RUN).apply(x)")
    files.endings = ENDINGS


def read_input(application: Application, files: FileReader, name: str, trained: object) -> Tensor:
    """Return an image (1, C, H, W), or audio (1, C, T) at the rate of training; `DataError` for a damaged file.

    trained: settings of the data of training.
    """
    where = files.where(name)
    if application.audio is None:
        return decode_whole(files.read(name), where, application.channels, trained)[None]
    file: File = os.fsencode(where) if isinstance(files, FolderReader) else io.BytesIO(files.read(name))
    info = read_info(file, where)
    rate = application.audio.sample_rate
    part = AudioPart(start=0, count=info.length_at(rate), sample_rate=rate, channels=application.audio.channels)
    return torch.from_numpy(read_part(file, info, part, where))[None]


def to_file(application: Application, output: Tensor) -> bytes:
    """Return an output (1, C, ...) as a PNG or WAV file."""
    if application.audio is not None:
        return to_wave(output[0], application.audio.sample_rate)
    content = io.BytesIO()
    SampledImages(output)[0].save(content, "PNG")
    return content.getvalue()
