"""Encoded images in plain tar files, WebDataset's or of a folder tree, read in place."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.datasets import _image_paths
from paragan.datasets._file_readers import MAX_FILE_BYTES
from paragan.datasets._image_decoding import EXTENSIONS
from paragan.datasets._samples import Samples, check_labels_of, hash_names

_LABEL = ".cls"
_MAX_LABEL_BYTES = 32
_DAMAGE_ERRORS = (tarfile.TarError, ValueError, EOFError, RecursionError)


@dataclass(frozen=True)
class TarMember:
    """An image file in a tar file. label: of WebDataset's `.cls` file; None without."""

    tar: int
    path: str
    offset: int
    num_bytes: int
    label: int | None = None


class TarSamples(Samples):
    """Images in one or more uncompressed tar files.

    With labels in `.cls` files, the order is that of the files; otherwise, one tar file has the
    classes and splits of a folder tree, and several have neither.
    """

    def __init__(self, tars: list[Path]) -> None:
        self._tars = tars
        found: list[TarMember] = []
        for number, tar in enumerate(tars):
            found += _read_members(tar, number)
        if len(found) < 2:
            count = "only one image" if found else "no images"
            raise DataError(f"{tars[0]}: {count}, at least two are required; check the tar file")
        if any(member.label is not None for member in found):
            self._use_labels(found)
        elif len(tars) == 1:
            found = self._use_folders(found)
        else:
            self.split_hashes = hash_names(f"{member.tar} {member.path}" for member in found)
        self._paths = _image_paths.PathList([os.fsencode(member.path) for member in found])
        self._places = np.array([(member.tar, member.offset, member.num_bytes) for member in found], np.int64)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the files, unchanged."""
        for row in range(start, stop):
            tar, offset, num_bytes = map(int, self._places[row])
            with open_regular_file(self._tars[tar]) as file:
                data = os.pread(file.fileno(), num_bytes, offset)
            if len(data) != num_bytes:
                raise DataError(f"{self.where(row)}: the tar file is cut; copy it again")
            yield data

    def where(self, row: int) -> str:
        """Return tar file and member."""
        return f"{self._tars[int(self._places[row, 0])]}: {self._paths[row]}"

    def _use_labels(self, found: list[TarMember]) -> None:
        missing = next((member for member in found if member.label is None), None)
        if missing is not None:
            where = f"{self._tars[missing.tar]}: {missing.path}"
            raise DataError(f"{where} has no {_LABEL} file with its label, but others have; add it")
        labels = np.array([member.label for member in found], np.int64)
        self.labels = check_labels_of(labels, str(self._tars[0]))
        self.class_names = tuple(map(str, range(int(self.labels.max()) + 1)))
        self.split_hashes = hash_names(f"{member.tar} {member.path}" for member in found)

    def _use_folders(self, found: list[TarMember]) -> list[TarMember]:
        visible = {m.path: m for m in found if not _image_paths.is_hidden(os.fsencode(m.path))}
        paths = self._split_by_folders(sorted(map(os.fsencode, visible)), str(self._tars[0]))
        return [visible[path] for path in paths]

    def _stamps(self) -> Iterator[str]:
        for row, path in enumerate(self._paths):
            yield f"{path} {self._places[row].tolist()}"


def is_plain_tar(path: Path) -> bool:
    """Return whether a file is an uncompressed tar file."""
    try:
        with open_regular_file(path) as file, tarfile.open(fileobj=file, mode="r:"):
            return True
    except (OSError, *_DAMAGE_ERRORS):
        return False


def _read_members(tar: Path, number: int) -> list[TarMember]:
    """Return the images of a tar file; only headers and labels are read."""
    images = []
    labels: dict[str, int] = {}
    try:
        with open_regular_file(tar) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            size = os.fstat(file.fileno()).st_size
            while (entry := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # which grow by 1 KB per file
                path = entry.name.removeprefix("./")
                key, suffix = _split_key(path)
                if not entry.isreg() or entry.sparse is not None:  # type: ignore[attr-defined]
                    continue
                if entry.offset_data + entry.size > size:
                    raise DataError(f"{tar}: the file ends within {path!r}; copy it again")
                if suffix == _LABEL:
                    labels[key] = _parse_label(os.pread(file.fileno(), _MAX_LABEL_BYTES, entry.offset_data), entry, tar)
                elif PurePosixPath(path).suffix.lower() in EXTENSIONS:
                    _check_size(entry.size, path, tar)
                    images.append(TarMember(number, path, entry.offset_data, entry.size))
    except _DAMAGE_ERRORS as error:
        raise DataError(f"{tar}: damaged tar file ({error}); copy or create it again") from None
    if not labels:
        return images
    keys = [_split_key(member.path) for member in images]
    return [
        TarMember(number, member.path, member.offset, member.num_bytes, labels.get(key))
        for member, (key, suffix) in zip(images, keys, strict=True)
        if suffix.lower() in EXTENSIONS  # not a second image of a sample, such as `.mask.png`
    ]


def _split_key(path: str) -> tuple[str, str]:
    """Split at the first dot of the file name, as WebDataset does."""
    folder, slash, name = path.rpartition("/")
    key, dot, suffix = name.partition(".")
    return f"{folder}{slash}{key}", f"{dot}{suffix}"


def _parse_label(content: bytes, entry: tarfile.TarInfo, tar: Path) -> int:
    text = content[: entry.size].strip()
    if not text.isdigit():
        raise DataError(f"{tar}: {entry.name} holds {text[:20]!r}; expected the number of a class")
    return int(text)


def _check_size(num_bytes: int, path: str, tar: Path) -> None:
    if num_bytes > MAX_FILE_BYTES:
        raise DataError(f"{tar}: {path!r} has {num_bytes:,} bytes, the limit is {MAX_FILE_BYTES:,}; make it smaller")
