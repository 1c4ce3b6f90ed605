"""CIFAR-10: 32x32 colour images of ten classes, from the official files or a partial or lossy copy.

Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", University of
Toronto, 2009; https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath
from paragan.core.source import Source
from paragan.datasets import _image_decoding, _tar_files
from paragan.datasets.base.in_memory import InMemorySource, compute_fingerprint, stratified_split
from paragan.storage import npz
from paragan.storage.download import RemoteFile, download

_CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE = 32
_FILE_ROWS = 10_000
_ROW = 1 + 3 * _SIDE * _SIDE  # bytes: the label, then the red, green and blue planes
_HELD_OUT = 1 / 10
_MAX_JPEG_BYTES = 1 << 16
_MAX_BYTES = 256 << 20  # unpacked; the official archive has 184 million
_BATCHES = {"train": tuple(f"data_batch_{n}.bin" for n in range(1, 6)), "held_out": ("test_batch.bin",)}
_BINARY = "cifar-10-binary.tar.gz"
_FILES = {
    "binary": (_BINARY, "data_batch_1.bin", "cifar-10-batches-bin/data_batch_1.bin"),
    "lossless": ("cifar10-lossless-first4000.npz",),
    "jpeg": ("cifar10-jpeg.tar.xz",),
}
_ENDINGS = {"binary": (".tar.gz", ".tgz", ".bin"), "lossless": (".npz",), "jpeg": (".tar.xz",)}
_REMOTE = RemoteFile(
    url=f"https://www.cs.toronto.edu/~kriz/{_BINARY}",
    num_bytes=170052171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)


@dataclass(frozen=True)
class Options:
    """Location and variant of the CIFAR-10 files.

    `binary`: `cifar-10-binary.tar.gz` or its unpacked `data_batch_1.bin` …, 50,000 and 10,000 images. `lossless`:
    `cifar10-lossless-first4000.npz`, the first 4,000 training images. `jpeg`: `cifar10-jpeg.tar.xz`, all images with
    LOSSY compression: Fréchet distances measured on them are not comparable with published ones.
    """

    path: FilePath = ""
    """The file or its folder. If empty, the binary archive is downloaded once."""
    variant: Literal["auto", "binary", "lossless", "jpeg"] = "auto"
    """File to read if the folder has several; `auto` selects the first of binary, lossless, jpeg.

    Scores on jpeg (lossy) are not comparable with published ones.
    """
    flip: bool = False  # `build.data` reads it
    """Mirror half of the training images, drawn anew in every epoch."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of shape (3, 32, 32).

    The held-out split is the official test set; of the 4,000 lossless images, a fixed tenth of each
    class. Raises `DataError` if the files are missing, or one has other content than its name says.
    """
    variant, path = _find_file(options) if options.path else ("binary", download(_REMOTE, "cifar10"))
    readers = {"binary": _read_binary, "lossless": _read_lossless, "jpeg": _read_jpeg}
    images_NCHW, labels_N = readers[variant](path, split)
    return InMemorySource(images_NCHW, labels_N, _CLASS_NAMES, compute_fingerprint("cifar10", variant, split, path))


def _find_file(options: Options) -> tuple[str, Path]:
    """Return variant and path of the file; a file may have any name with the ending of a variant."""
    path = Path(options.path)
    file_of: dict[str, Path] = {}
    for variant, names in _FILES.items():
        named = [path] if path.name.endswith(_ENDINGS[variant]) else []
        candidates = [path / name for name in names] if path.is_dir() else named
        if (file := next(filter(Path.is_file, candidates), None)) is not None:
            file_of[variant] = file
    wanted = list(_FILES) if options.variant == "auto" else [options.variant]
    for variant in wanted:
        if variant in file_of:
            return variant, file_of[variant]
    needed = " or ".join(_FILES[variant][0] for variant in wanted)
    if file_of:
        other, file = next(iter(file_of.items()))
        raise DataError(f"data.path contains {file.name} instead of {needed}; pass data.variant={other} to use it")
    raise DataError(f"data.path: no CIFAR-10 file in {options.path!r}; pass data.path=DIR of {needed}")


def _read_binary(path: Path, split: str) -> tuple[Tensor, Tensor]:
    names = _BATCHES[split]
    place = path.parent if path.suffix == ".bin" else path  # an unpacked file is one of several
    if path.suffix == ".bin":
        files = {name: _read_batch_file(path.with_name(name)) for name in names}
    else:
        members = _tar_files.read_members(path, lambda name: Path(name).name in names, _MAX_BYTES, _ROW * _FILE_ROWS)
        files = {Path(name).name: data for name, data in members}
    rows = [_parse_rows(files.get(name, b""), f"{place}: {name}") for name in names]
    rows_NX = torch.from_numpy(np.concatenate(rows))
    return rows_NX[:, 1:].reshape(-1, 3, _SIDE, _SIDE).contiguous(), rows_NX[:, 0].long()


def _read_batch_file(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"{path}: no such file; all six .bin files of CIFAR-10 must be in one folder")
    with path.open("rb") as stream:
        return stream.read(_ROW * _FILE_ROWS + 1)  # one more, so that a longer file is noticed


def _parse_rows(data: bytes, where: str) -> np.ndarray:
    if len(data) != _ROW * _FILE_ROWS:
        problem = f"{len(data):,} bytes instead of {_ROW * _FILE_ROWS:,}" if data else "no data"
        raise DataError(f"{where}: {problem} (10,000 images); download {_BINARY} again")
    rows = np.frombuffer(data, np.uint8).reshape(-1, _ROW)
    if (highest := rows[:, 0].max()) >= len(_CLASS_NAMES):
        raise DataError(f"{where}: invalid label {highest}, labels must be 0 to 9; download {_BINARY} again")
    return rows


def _read_lossless(path: Path, split: str) -> tuple[Tensor, Tensor]:
    images, labels = (npz.read_array(path, name, _MAX_BYTES) for name in ("images", "labels"))
    is_valid = images.dtype == labels.dtype == np.uint8 and images.shape == (len(labels), _SIDE, _SIDE, 3)
    if not is_valid or labels.max(initial=0) >= len(_CLASS_NAMES):
        arrays = f"images {images.shape} {images.dtype} and labels {labels.shape} {labels.dtype}"
        raise DataError(
            f"{path}: {arrays} instead of uint8 (N, 32, 32, 3) and uint8 (N,) from 0 to 9; download the file again"
        )
    labels_N = torch.from_numpy(labels).long()
    rows = stratified_split(labels_N, _HELD_OUT, "cifar10")[split]
    return torch.from_numpy(images).permute(0, 3, 1, 2)[rows].contiguous(), labels_N[rows]


def _read_jpeg(path: Path, split: str) -> tuple[Tensor, Tensor]:
    folder = "train/" if split == "train" else "test/"
    images: list[np.ndarray] = []
    labels: list[int] = []
    for name, data in _tar_files.read_members(path, lambda name: name.startswith(folder), _MAX_BYTES, _MAX_JPEG_BYTES):
        label = Path(name).stem.rpartition("_")[2]
        where = f"{path}: {name}"
        image = _image_decoding.decode_image(data, where)
        x_CHW = _image_decoding.to_chw_array(_image_decoding.convert_image(image, where, channels=3, background=0))
        if label not in tuple("0123456789") or x_CHW.shape != (3, _SIDE, _SIDE):
            raise DataError(f"{path}: {name!r} is not a 32x32 image named NUMBER_LABEL.jpg; download the file again")
        images.append(x_CHW)
        labels.append(int(label))
    if not images:
        raise DataError(f"{path}: no images {folder}NUMBER_LABEL.jpg; download the file again")
    return torch.from_numpy(np.stack(images)), torch.tensor(labels)
