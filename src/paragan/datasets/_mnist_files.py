"""Data sets in the format of MNIST: 60,000 training and 10,000 test images, grey, 28x28."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.source import Source
from paragan.datasets import _idx_format
from paragan.datasets._download import RemoteFile, download
from paragan.datasets._in_memory import InMemorySource, compute_fingerprint

_STEMS = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
_SPLIT_STEMS = {"train": _STEMS[:2], "held_out": _STEMS[2:]}
_SIDE = 28


def source(
    name: str,
    path: str,
    size: int,
    split: str,
    class_names: tuple[str, ...],
    remotes: Mapping[str, RemoteFile],
) -> Source:
    """Return a split of shape (1, size, size); above 28, images get a black border.

    name: the data set. path: folder of the files; if it is empty, `remotes` are downloaded. Raises
    `DataError` if a file is missing or truncated, or has other content than its name says.
    """
    images_path, labels_path = (
        _local_file(path, stem) if path else download(remotes[stem], name) for stem in _SPLIT_STEMS[split]
    )
    images_NHW = _read_bytes(images_path, num_axes=3)
    labels_N = _read_bytes(labels_path, num_axes=1)
    _check_shapes(images_NHW, labels_N, len(class_names), images_path, labels_path)
    border = (size - _SIDE) // 2
    fingerprint = compute_fingerprint(name, size, images_path, labels_path)
    return InMemorySource(F.pad(images_NHW, (border,) * 4)[:, None], labels_N.long(), class_names, fingerprint)


def remote_files(url: str, sizes_and_hashes: Sequence[tuple[int, str]]) -> dict[str, RemoteFile]:
    """Return the remote files by name without `.gz`.

    url: of their folder. sizes_and_hashes: bytes and sha256 of the training images, training
    labels, test images and test labels.
    """
    files = zip(_STEMS, sizes_and_hashes, strict=True)
    return {stem: RemoteFile(f"{url}/{stem}.gz", num_bytes, sha256) for stem, (num_bytes, sha256) in files}


def _check_shapes(images_NHW: Tensor, labels_N: Tensor, num_classes: int, images_path: Path, labels_path: Path) -> None:
    if images_NHW.shape[1:] != (_SIDE, _SIDE):
        height, width = images_NHW.shape[1:]
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


def _local_file(path: str, stem: str) -> Path:
    """Return the path of the gzipped file or of the plain one."""
    if not Path(path).is_dir():
        raise DataError(f"data.path: no folder {path!r}; pass the folder of the four idx files: data.path=DIR")
    for candidate in (Path(path, f"{stem}.gz"), Path(path, stem)):
        if candidate.is_file():
            return candidate
    raise DataError(f"data.path: no file {stem}.gz or {stem} in {path!r}; it must contain all four idx files")
