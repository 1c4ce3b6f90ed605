"""A set in the four files of MNIST: 28x28 grey images of ten classes, 60,000 to train with and 10,000 held out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.protocols import Source
from paragan.datasets import _idx_format
from paragan.datasets._download import RemoteFile, download
from paragan.datasets._in_memory import InMemorySource, compute_fingerprint

_PREFIX = {"train": "train", "held_out": "t10k"}
_SIDE = 28


def source(
    name: str, path: str, size: int, split: str, class_names: tuple[str, ...], remotes: Mapping[str, RemoteFile]
) -> Source:
    """(1, size, size): 28, or more with a black frame. path: the folder; where it is empty, `remotes` are fetched.

    Raises `DataError` where a file is missing, truncated, or not what its name says.
    """
    stems = (f"{_PREFIX[split]}-images-idx3-ubyte", f"{_PREFIX[split]}-labels-idx1-ubyte")
    images_path, labels_path = (_file(path, stem) if path else download(remotes[stem], name) for stem in stems)
    images_NHW, labels_N = _bytes(images_path, num_axes=3), _bytes(labels_path, num_axes=1)
    if images_NHW.shape[1:] != (_SIDE, _SIDE):
        height, width = images_NHW.shape[1:]
        raise DataError(f"{images_path}: found images of {height}x{width}, expected {_SIDE}x{_SIDE}; check data.path")
    if len(images_NHW) != len(labels_N):
        raise DataError(
            f"{labels_path}: found {len(labels_N):,} labels, expected {len(images_NHW):,}, one for each image"
        )
    if (highest := int(labels_N.max())) >= len(class_names):
        raise DataError(f"{labels_path}: found label {highest}, expected labels 0 to {len(class_names) - 1}")
    frame = (size - _SIDE) // 2
    fingerprint = compute_fingerprint(name, size, images_path, labels_path)
    return InMemorySource(F.pad(images_NHW, (frame,) * 4)[:, None], labels_N.long(), class_names, fingerprint)


def remotes(folder: str, files: Mapping[str, tuple[int, str]]) -> dict[str, RemoteFile]:
    """From the URL of a folder and, by name without `.gz`, the files' sizes and sha256."""
    return {stem: RemoteFile(f"{folder}/{stem}.gz", *facts) for stem, facts in files.items()}


def _bytes(path: Path, num_axes: int) -> Tensor:
    return torch.from_numpy(_idx_format.read_idx(path, num_axes).copy())  # a copy can be written to, as torch demands


def _file(path: str, stem: str) -> Path:
    """The gzipped file, or the plain one."""
    what = "the four MNIST idx files"
    if not Path(path).is_dir():
        raise DataError(f"data.path: found no folder {path!r}, expected the folder of {what}; give data.path=FOLDER")
    for candidate in (Path(path, f"{stem}.gz"), Path(path, stem)):
        if candidate.is_file():
            return candidate
    raise DataError(f"data.path: found no {stem}.gz (nor {stem}) in {path!r}, expected {what}; check data.path")
