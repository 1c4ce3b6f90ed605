"""Data sets in the format of MNIST: 60,000 training and 10,000 test images, grey, 28x28."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.source import Source
from paragan.datasets import _idx_format
from paragan.datasets._download import RemoteFile, download
from paragan.datasets._in_memory import InMemorySource, compute_fingerprint
from paragan.datasets._options import IdxOptions

_STEMS = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
_SPLIT_STEMS = {"train": _STEMS[:2], "held_out": _STEMS[2:]}
_SIDE = 28


class MnistFiles:
    """Four gzipped idx files on the web.

    name: the data set. url: of their folder. sizes_and_hashes: bytes and sha256 of the training
    images, training labels, test images and test labels.
    """

    def __init__(
        self, name: str, class_names: tuple[str, ...], url: str, sizes_and_hashes: Sequence[tuple[int, str]]
    ) -> None:
        self._name = name
        self._class_names = class_names
        files = zip(_STEMS, sizes_and_hashes, strict=True)
        self.remotes = {stem: RemoteFile(f"{url}/{stem}.gz", *size_and_hash) for stem, size_and_hash in files}

    def source(self, options: IdxOptions, split: Literal["train", "held_out"]) -> Source:
        """Return the 60,000 training or the 10,000 test images, (1, size, size).

        At size 32, images get a black border. Without `path`, the files are downloaded. Raises
        `DataError` if a file is missing or truncated, or has other content than its name says.
        """
        paths = [self._find(options.path, stem) for stem in _SPLIT_STEMS[split]]
        images_NHW = _read_bytes(paths[0], num_axes=3)
        labels_N = _read_bytes(paths[1], num_axes=1)
        _check_shapes(images_NHW, labels_N, len(self._class_names), *paths)
        border = (options.size - _SIDE) // 2
        images_N1HW = F.pad(images_NHW, (border,) * 4)[:, None]
        fingerprint = compute_fingerprint(self._name, options.size, *paths)
        return InMemorySource(images_N1HW, labels_N.long(), self._class_names, fingerprint)

    def _find(self, path: str, stem: str) -> Path:
        """Return the gzipped or the plain file in the folder `path`, or download it."""
        if not path:
            return download(self.remotes[stem], self._name)
        if not Path(path).is_dir():
            raise DataError(f"data.path: no folder {path!r}; pass the folder of the four idx files: data.path=DIR")
        for candidate in (Path(path, f"{stem}.gz"), Path(path, stem)):
            if candidate.is_file():
                return candidate
        raise DataError(f"data.path: no file {stem}.gz or {stem} in {path!r}; it must contain all four idx files")


def _check_shapes(images_NHW: Tensor, labels_N: Tensor, num_classes: int, images_path: Path, labels_path: Path) -> None:
    height, width = images_NHW.shape[1:]
    if (height, width) != (_SIDE, _SIDE):
        raise DataError(f"{images_path}: images are {height}x{width} instead of {_SIDE}x{_SIDE}; check data.path")
    if len(images_NHW) != len(labels_N):
        raise DataError(
            f"{labels_path}: {len(labels_N):,} labels for {len(images_NHW):,} images; download both files again"
        )
    if (highest := int(labels_N.max())) >= num_classes:
        raise DataError(f"{labels_path}: invalid label {highest}; labels must be 0 to {num_classes - 1}")


def _read_bytes(path: Path, num_axes: int) -> Tensor:
    # torch requires a writable array
    return torch.from_numpy(_idx_format.read_idx(path, num_axes).copy())
