"""Data sets in the format of MNIST: 60,000 training and 10,000 test images, grey, 28x28.

An idx file has a magic number, big-endian sizes, then bytes; it is plain or gzipped. Source: Y. LeCun, C. Cortes, C. J.
C. Burges, "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.source import Source
from paragan.datasets._options import IdxOptions
from paragan.datasets.base.in_memory import InMemorySource, compute_fingerprint
from paragan.datasets.base.open_reader import check_path
from paragan.storage.download import RemoteFile, download

_STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SPLIT_STEMS = {"train": _STEMS[:2], "held_out": _STEMS[2:]}
_SIDE = 28
_BYTES_TYPE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_BYTES = 1 << 30


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
        self._remotes = {stem: RemoteFile(f"{url}/{stem}.gz", *size_and_hash) for stem, size_and_hash in files}

    def source(self, options: IdxOptions, split: Literal["train", "held_out"]) -> Source:
        """Return the 60,000 training or the 10,000 test images, (1, size, size).

        At size 32, images get a black border. Without `path`, the files are downloaded. Raises
        `DataError` if a file is missing or truncated, or has other content than its name says.
        """
        paths = [self._find(options.path, stem) for stem in _SPLIT_STEMS[split]]
        images_NHW = torch.from_numpy(_read_idx(paths[0], num_axes=3))
        labels_N = torch.from_numpy(_read_idx(paths[1], num_axes=1))
        _check_arrays(images_NHW, labels_N, len(self._class_names), *paths)
        border = (options.size - _SIDE) // 2
        images_N1HW = F.pad(images_NHW, (border,) * 4)[:, None]
        fingerprint = compute_fingerprint(self._name, options.size, *paths)
        return InMemorySource(images_N1HW, labels_N.long(), self._class_names, fingerprint)

    def _find(self, path: str, stem: str) -> Path:
        """Return the gzipped or the plain file in the folder `path`, or download it."""
        if not path:
            return download(self._remotes[stem], self._name)
        check_path(path, self._name, fix="pass the folder of the four idx files: data.path=DIR")
        for candidate in (Path(path, f"{stem}.gz"), Path(path, stem)):
            if candidate.is_file():
                return candidate
        raise DataError(f"data.path: no file {stem}.gz or {stem} in {path!r}; it must contain all four idx files")


def _check_arrays(images_NHW: Tensor, labels_N: Tensor, num_classes: int, images_path: Path, labels_path: Path) -> None:
    height, width = images_NHW.shape[1:]
    if (height, width) != (_SIDE, _SIDE):
        raise DataError(f"{images_path}: images are {height}x{width} instead of {_SIDE}x{_SIDE}; check data.path")
    if len(images_NHW) != len(labels_N):
        raise DataError(
            f"{labels_path}: {len(labels_N):,} labels for {len(images_NHW):,} images; download both files again"
        )
    if (highest := int(labels_N.max())) >= num_classes:
        raise DataError(f"{labels_path}: invalid label {highest}; labels must be 0 to {num_classes - 1}")


def _read_idx(path: Path, num_axes: int) -> NDArray[np.uint8]:
    """Read the array of an idx file.

    Decompresses no more bytes than the header declares, at most 1 GiB. Raises `DataError` if the
    file is missing, damaged, truncated or too long, or is not an idx file of bytes.
    """
    try:
        with path.open("rb") as raw:
            is_gzipped = raw.peek(2).startswith(_GZIP_MAGIC)
            return _read_array(gzip.open(raw) if is_gzipped else raw, path, num_axes)
    except EOFError:
        raise _damage_error(path, "the gzip stream is truncated") from None
    except (gzip.BadGzipFile, zlib.error):
        raise _damage_error(path, "the gzip stream is damaged") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from None


def _read_array(stream: BinaryIO | gzip.GzipFile, path: Path, num_axes: int) -> NDArray[np.uint8]:
    magic = bytes((0, 0, _BYTES_TYPE, num_axes))
    head = stream.read(4 + 4 * num_axes)
    if head[:4] != magic:
        number = head[:4].hex() or "(missing)"
        raise _damage_error(path, f"the magic number is {number} instead of {magic.hex()} (bytes, {num_axes} axes)")
    if len(head) != 4 + 4 * num_axes:
        raise _damage_error(path, f"the header has {len(head)} bytes instead of {4 + 4 * num_axes}")
    shape = struct.unpack(f">{num_axes}I", head[4:])
    declared = math.prod(shape)
    if not 0 < declared <= _MAX_BYTES:
        raise _damage_error(path, f"the header declares {declared:,} bytes, the limit is {_MAX_BYTES:,}")
    # one more byte: detects excess data, and makes gzip verify its checksum
    data = stream.read(declared + 1)
    if len(data) != declared:
        count = f"only {len(data):,}" if len(data) < declared else "more"
        raise _damage_error(path, f"{count} bytes follow the header, which declares {declared:,}")
    return np.frombuffer(bytearray(data), np.uint8).reshape(shape)  # writable, for torch


def _damage_error(path: Path, problem: str) -> DataError:
    return DataError(f"{path}: {problem}; download the file again")
