"""MNIST, or any set in its files (Fashion-MNIST, KMNIST): 28x28 grey images of ten classes, from idx files.

Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition",
Proceedings of the IEEE, 1998.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.seams import Source
from paragan.datasets import _idx
from paragan.datasets._memory import Memory

_PREFIX = {"train": "train", "held_out": "t10k"}
_SIDE = 28
_CLASS_NAMES = tuple("0123456789")


@dataclass(frozen=True)
class Options:
    """path: the folder of the four idx files, gzipped or plain. size: 28, or 32 with a black frame of two pixels."""

    path: str = ""
    size: Literal[28, 32] = 28


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """The 60,000 images of the training files or the 10,000 of the test files, (1, size, size).

    Raises `DataError` where a file is missing, truncated, or not what its name says.
    """
    folder = _folder(options.path)
    images_path = _file(folder, f"{_PREFIX[split]}-images-idx3-ubyte")
    labels_path = _file(folder, f"{_PREFIX[split]}-labels-idx1-ubyte")
    images_NHW, labels_N = _bytes(images_path, num_axes=3), _bytes(labels_path, num_axes=1)
    if images_NHW.shape[1:] != (_SIDE, _SIDE):
        height, width = images_NHW.shape[1:]
        raise DataError(f"{images_path}: found images of {height}x{width}, expected {_SIDE}x{_SIDE}; check data.path")
    if len(images_NHW) != len(labels_N):
        raise DataError(
            f"{labels_path}: found {len(labels_N):,} labels, expected {len(images_NHW):,}, one for each image"
        )
    if (highest := int(labels_N.max())) >= len(_CLASS_NAMES):
        raise DataError(f"{labels_path}: found label {highest}, expected labels 0 to {len(_CLASS_NAMES) - 1}")
    frame = (options.size - _SIDE) // 2
    return Memory(F.pad(images_NHW, (frame,) * 4)[:, None], labels_N.long(), _CLASS_NAMES)


def _bytes(path: Path, num_axes: int) -> Tensor:
    return torch.from_numpy(_idx.read(path, num_axes).copy())  # a copy can be written to, as torch demands


def _folder(path: str) -> Path:
    what_to_do = "expected the folder of the four MNIST idx files; give data.path=FOLDER"
    if not path:
        raise DataError(f"data.path: found nothing, {what_to_do}")
    if not Path(path).is_dir():
        raise DataError(f"data.path: found no folder {path!r}, {what_to_do}")
    return Path(path)


def _file(folder: Path, name: str) -> Path:
    """The gzipped file, or the plain one."""
    for candidate in (folder / f"{name}.gz", folder / name):
        if candidate.is_file():
            return candidate
    raise DataError(
        f"data.path: found no {name}.gz (nor {name}) in {str(folder)!r}, expected the four MNIST idx files; "
        "check data.path"
    )
