"""Encoded images in plain tar files, WebDataset's or of a folder tree, read in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.datasets import _image_paths
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._image_formats import EXTENSIONS
from paragan.datasets._tar_files import check_member_size, plain_members
from paragan.datasets.base.file_readers import MAX_FILE_BYTES

_LABEL = ".cls"
_MAX_LABEL_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class TarMember:
    """An image file in a tar file. label: of WebDataset's `.cls` file; None without."""

    tar: int
    path: str
    offset: int
    num_bytes: int
    label: int | None = None


class TarImages(EncodedImages):
    """Images in one or more uncompressed tar files.

    With labels in `.cls` files, the order is that of the files; otherwise, one tar file has the
    classes and splits of a folder tree, and several have neither.
    """

    def __init__(self, tars: list[Path]) -> None:
        self._tars = tars
        members: list[TarMember] = []
        for number, tar in enumerate(tars):
            members += _read_members(tar, number)
        if len(members) < 2:
            count = "only one image" if members else "no images"
            raise DataError(f"{tars[0]}: {count}, at least two are required; check the tar file")
        has_labels = any(member.label is not None for member in members)
        if len(tars) == 1 and not has_labels:
            members = self._use_folders(members)
        else:
            self.split_hashes = _image_paths.hash_names(
                os.fsencode(f"{member.tar} {member.path}") for member in members
            )
        if has_labels:
            self._read_labels(members)
        self._paths = _image_paths.PathList([os.fsencode(member.path) for member in members])
        self._places = np.array([(member.tar, member.offset, member.num_bytes) for member in members], np.int64)

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the files, unchanged."""
        return [self._read(row) for row in rows]

    def where(self, row: int) -> str:
        """Return tar file and member."""
        return f"{self._tars[int(self._places[row, 0])]}: {self._paths[row]}"

    def _read(self, row: int) -> bytes:
        tar, offset, num_bytes = map(int, self._places[row])
        with open_regular_file(self._tars[tar]) as file:
            data = os.pread(file.fileno(), num_bytes, offset)
        if len(data) != num_bytes:
            raise DataError(f"{self.where(row)}: the tar file is cut; copy it again")
        return data

    def _read_labels(self, members: list[TarMember]) -> None:
        missing = next((member for member in members if member.label is None), None)
        if missing is not None:
            where = f"{self._tars[missing.tar]}: {missing.path}"
            raise DataError(f"{where} has no {_LABEL} file with its label, but others have; add it")
        self._use_labels(np.array([member.label for member in members], np.int64), str(self._tars[0]))

    def _use_folders(self, members: list[TarMember]) -> list[TarMember]:
        """Set the classes and splits of a folder tree; return the members in its order."""
        visible = {m.path: m for m in members if not _image_paths.is_hidden(os.fsencode(m.path))}
        arranged = _image_paths.arrange(sorted(map(os.fsencode, visible)), str(self._tars[0]))
        self.labels = arranged.labels
        self.class_names = arranged.class_names
        self.num_train = arranged.num_train
        self.split_hashes = arranged.split_hashes
        return [visible[os.fsdecode(path)] for path in arranged.paths]

    def _stamps(self) -> Iterator[str]:
        for row, path in enumerate(self._paths):
            yield f"{path} {self._places[row].tolist()}"


def _read_members(tar: Path, number: int) -> list[TarMember]:
    """Return the images of a tar file; only headers and labels are read."""
    images = []
    labels: dict[str, int] = {}
    for entry, file in plain_members(tar):
        path = entry.name.removeprefix("./")
        key, suffix = _split_key(path)
        if suffix == _LABEL:
            content = os.pread(file.fileno(), min(entry.size, _MAX_LABEL_BYTES), entry.offset_data)
            labels[key] = _parse_label(content, f"{tar}: {entry.name}")
        elif PurePosixPath(path).suffix.lower() in EXTENSIONS:
            check_member_size(tar, entry, MAX_FILE_BYTES)
            images.append(TarMember(tar=number, path=path, offset=entry.offset_data, num_bytes=entry.size))
    if not labels:
        return images
    keys = [_split_key(member.path) for member in images]
    return [
        replace(member, label=labels.get(key))
        for member, (key, suffix) in zip(images, keys, strict=True)
        if suffix.lower() in EXTENSIONS  # not a second image of a sample, such as `.mask.png`
    ]


def _split_key(path: str) -> tuple[str, str]:
    """Split at the first dot of the file name, as WebDataset does."""
    folder, slash, name = path.rpartition("/")
    key, dot, suffix = name.partition(".")
    return f"{folder}{slash}{key}", f"{dot}{suffix}"


def _parse_label(content: bytes, where: str) -> int:
    text = content.strip()
    if not text.isdigit():
        raise DataError(f"{where} holds {text[:20]!r}; expected the number of a class")
    return int(text)
