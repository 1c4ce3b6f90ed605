"""Audio files in a folder or zip file: random segments, resampled, with their mel spectrograms.

Source: your files; of each only the segment is read. Needs the extra `audio` (soundfile, soxr).
"""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.source import AudioFormat, Source, TensorSpec
from paragan.datasets._damaged_images import exclude_damaged
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._folder_layout import arrange
from paragan.datasets._options import AudioOptions as Options
from paragan.datasets.base.audio_files import ENDINGS, File, read_info, read_part, require_packages
from paragan.datasets.base.file_readers import FolderReader
from paragan.datasets.base.open_images import FileImages
from paragan.datasets.base.open_reader import open_reader
from paragan.layers.log_mel import LogMel

_BLOCK = 1 << 20  # samples of a file that are read at once to see whether it is damaged


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return segments `audio` (channels, segment) in [-1, 1], and `mel` (channels * n_mels, segment / hop).

    A row is a file. A training segment begins at a random place of it, a held-out one is its middle. The
    headers of the files are read here. Raises `DataError` for a path without two files and for a damaged
    file, `ConfigError` without the packages.
    """
    require_packages()
    return AudioSegments(options, split)


def audio_format(options: Options) -> AudioFormat:
    """Return the format of the audio, and how `mel` is computed from it."""
    log_mel = LogMel.of(options)
    return AudioFormat(sample_rate=options.sample_rate, channels=options.channels, derived={"mel": log_mel})


class Segments(Source):
    """Base class of segments of audio with their mel spectrograms. is_random: drawn by seed and place in the stream."""

    def __init__(self, options: Options, is_random: bool) -> None:
        self.tensors = {
            "audio": TensorSpec((options.channels, options.segment), torch.float32),
            "mel": TensorSpec((options.channels * options.n_mels, options.segment // options.hop), torch.float32),
        }
        self._options = options
        self._is_random = is_random
        self._mel = LogMel.of(options)

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        rows = torch.arange(len(self)).index_select(0, torch.as_tensor(indices)).tolist()  # none below 0
        keys: list[int | None] = [None] * len(rows)
        if self._is_random and places is not None:
            keys = [rng.key(seed, "segment", int(place)) for place in places]
        audio_BCT = torch.stack([self._segment(row, key) for row, key in zip(rows, keys, strict=True)])
        with torch.no_grad():
            return {"audio": audio_BCT, "mel": self._mel(audio_BCT)}

    @abstractmethod
    def _segment(self, row: int, key: int | None) -> Tensor:
        """Return (channels, segment) of a row, at the place of a key; None: where all held-out segments are."""


class AudioSegments(Segments):
    """Segments of the files of a split."""

    is_decoded = True

    def __init__(self, options: Options, split: Literal["train", "held_out"]) -> None:
        super().__init__(options, is_random=split == "train")
        images = _list_files(options)
        self.rows = images.rows(split, options.held_out).tolist()
        # files have no classes, so that `labels` changes nothing
        settings = {name: value for name, value in vars(options).items() if name not in ("path", "labels")}
        self.fingerprint = images.fingerprint(np.array(self.rows), str(settings))
        self.notices = images.notices
        self._images = images
        self._infos = [read_info(self._file(row), self.where(row)) for row in range(len(self))]
        self.reading = f"{self._describe()}; {images.describe_rest(len(self))}" if self._is_random else ""
        for row, info in enumerate(self._infos):
            if info.channels > 2 and options.channels == 2:
                raise DataError(
                    f"{self.where(row)}: {info.channels} channels, which are not stereo; pass data.channels=1"
                )

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, row: int) -> str:
        return self._images.where(self.rows[row])

    def _file(self, row: int) -> File:
        return _to_file(self._images.read([self.rows[row]])[0], self._options)

    def _segment(self, row: int, key: int | None) -> Tensor:
        options = self._options
        num_places = max(0, self._infos[row].length_at(options.sample_rate) - options.segment) + 1
        audio_CT = read_part(
            self._file(row),
            self._infos[row],
            self.where(row),
            start=(num_places - 1) // 2 if key is None else key % num_places,
            count=options.segment,
            sample_rate=options.sample_rate,
            channels=options.channels,
        )
        return F.pad(torch.from_numpy(audio_CT), (0, options.segment - audio_CT.shape[1]))  # silence after a short file

    def _describe(self) -> str:
        options = self._options
        minutes = sum(info.num_samples / info.sample_rate for info in self._infos) / 60
        duration = f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:,.1f} h"
        num_others = sum(info.sample_rate != options.sample_rate for info in self._infos)
        num_short = sum(info.length_at(options.sample_rate) < options.segment for info in self._infos)
        parts = [
            f"{len(self):,} audio files of {duration}: {_counts(f'{info.sample_rate} Hz' for info in self._infos)}",
            f"{_counts(f'{info.channels}-channel' for info in self._infos)}, read as {options.channels}",
            f"{num_others:,} resampled to {options.sample_rate} Hz" if num_others else "",
            f"{num_short:,} shorter than data.segment, padded with silence" if num_short else "",
        ]
        return "; ".join(filter(None, parts))


class _AudioPaths(FileImages):
    """Files of a folder, whose paths are read instead of their content: a part of a file is enough."""

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [os.fsencode(self.where(row)) for row in rows]


def _list_files(options: Options) -> EncodedImages:
    """Return the files of both splits, without damaged ones if they are skipped."""
    files = open_reader(options.path, "audio")
    files.endings = ENDINGS
    paths = files.find()
    if len(paths) < 2:
        ignored = ", ".join(f"{count:,} {kind}" for kind, count in files.ignored.items())
        raise DataError(
            f"data.path: {len(paths)} audio files in {options.path!r}, at least two are required (one is held out); "
            f"split a long file, or check data.path; ignored: {ignored or 'nothing'}"
        )
    arranged = arrange(paths, options.path, "none")
    kind = _AudioPaths if isinstance(files, FolderReader) else FileImages
    images: EncodedImages = kind(files, arranged)
    if options.damaged == "skip":
        return exclude_damaged(images, partial(_read_all, options), "audio", options.path)
    return images


def _read_all(options: Options, data: bytes, where: str) -> None:
    """Raise `DataError` if a part of a file is damaged."""
    file = _to_file(data, options)
    info = read_info(file, where)
    for start in range(0, info.num_samples, _BLOCK):
        read_part(file, info, where, start=start, count=_BLOCK, sample_rate=info.sample_rate, channels=1)


def _to_file(data: bytes, options: Options) -> File:
    return data if os.path.isdir(options.path) else io.BytesIO(data)


def _counts(values: Iterable[str]) -> str:
    return ", ".join(f"{count:,} {value}" for value, count in Counter(values).most_common())
