"""Shards of encoded images: tar files with an index, as `data prepare` writes them; random access.

A folder holds `shard-000000.tar` and so on with `samples_per_shard` samples each, the last with the
rest; `index.bin` with 48 bytes per sample (`RECORD`), mapped into memory; and `dataset.json`. The
place of a sample follows from its row and its record alone, so no tar header is ever read.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.files import open_regular_file, read_bytes

DESCRIPTION = "dataset.json"
INDEX = "index.bin"
UNFINISHED = ".prepare"  # folder of what a stopped `data prepare` needs to continue
VERSION = 1
BLOCK_BYTES = 512  # of a tar file, in which members start at multiples
MAX_SAMPLE_BYTES = 256 << 20
RECORD = np.dtype(
    [
        ("block", "<u4"),  # offset of the image in its shard, in blocks
        ("num_bytes", "<u4"),
        ("label", "<i4"),  # -1 without labels
        ("split_hash", "<u4"),  # decides whether the sample is held out
        ("sha256", "u1", 32),
    ]
)
_MAX_DESCRIPTION_BYTES = 256 << 20
_MAX_SIDE = 4096
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class StoredFile:
    """Name, size and sha256 of a file."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Encoding:
    """How the images of shards were made. quality: of JPEG, 1 to 100. pillow: its version."""

    size: int
    channels: int = 3
    crop: str = "center"
    background: int = 255
    filter: str = "lanczos"
    format: str = "png"
    quality: int | None = None
    pillow: str = ""


@dataclass(frozen=True)
class ShardDescription:
    """Content of `dataset.json`.

    num_train: number of training samples, which come first; None: held out by `split_hash`. source:
    fingerprint of names and sizes in the source. encoding: None: files of the source, unchanged.
    """

    format: Literal["paragan-shards"]
    version: int
    num_samples: int
    samples_per_shard: int
    num_train: int | None
    class_names: tuple[str, ...]
    encoding: Encoding | None
    source: str
    index: StoredFile
    shards: tuple[StoredFile, ...]


class ShardFolder:
    """Random access to the samples of a folder of shards.

    index: records (N,) of type `RECORD`, mapped. Raises `DataError` if the description or the size
    of the index is invalid. Several threads may read at the same time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description = read_description(folder)
        self.index = map_index(folder / INDEX, self.description.num_samples)

    def __len__(self) -> int:
        return self.description.num_samples

    def locate(self, row: int) -> tuple[StoredFile, int, int]:
        """Return the shard of a sample, and offset and number of bytes of its image in it."""
        record = self.index[row]
        shard = self.description.shards[row // self.description.samples_per_shard]
        return shard, int(record["block"]) * BLOCK_BYTES, int(record["num_bytes"])

    def read(self, row: int) -> bytes:
        """Return the image of a sample; `DataError` that names it if its sha256 differs."""
        shard, offset, num_bytes = self.locate(row)
        if offset + num_bytes > shard.num_bytes or num_bytes > MAX_SAMPLE_BYTES:
            raise DataError(f"{self.where(row)}: {INDEX} is damaged; {_PREPARE_AGAIN}")
        with _raise_read_errors(self.folder / shard.name):
            handle = os.open(self.folder / shard.name, os.O_RDONLY)
            try:
                data = os.pread(handle, num_bytes, offset)
            finally:
                os.close(handle)
        if hashlib.sha256(data).digest() != self.index[row]["sha256"].tobytes():
            problem = "the bytes differ from the sha256 in the index" if len(data) == num_bytes else "the shard is cut"
            raise DataError(f"{self.where(row)}: {problem}; {_PREPARE_AGAIN}")
        return data

    def where(self, row: int) -> str:
        """Return shard and sample in messages."""
        shard = self.description.shards[row // self.description.samples_per_shard]
        return f"{self.folder / shard.name}: sample {sample_key(row)}"

    def damaged_files(self) -> Iterator[StoredFile]:
        """Yield the index and the shards whose size or sha256 differs from the description."""
        for file in (self.description.index, *self.description.shards):
            try:
                if hash_file(self.folder / file.name, file.name) != file:
                    yield file
            except OSError:
                yield file


_PREPARE_AGAIN = "copy the file again, or prepare the data again"


def sample_key(row: int) -> str:
    """Return the name of a sample in its shard, without a suffix."""
    return f"{row:09d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:06d}.tar"


def has_shards(folder: Path) -> bool:
    """Return whether this is a folder of shards, also one whose preparation has not finished."""
    return ((folder / DESCRIPTION).is_file() and (folder / INDEX).is_file()) or (folder / UNFINISHED).is_dir()


def read_description(folder: Path) -> ShardDescription:
    """Read `dataset.json`. Raises `DataError` if it is missing, invalid or of another version."""
    from pydantic import TypeAdapter, ValidationError

    path = folder / DESCRIPTION
    if not path.is_file():
        if (folder / UNFINISHED).is_dir():
            command = f"{program_command()} data prepare SRC {folder}"
            raise DataError(f"{folder}: the preparation of the shards was stopped; finish it with `{command}`")
        raise DataError(f"{folder}: no {DESCRIPTION}; make shards with `{program_command()} data prepare SRC OUT`")
    with _raise_read_errors(path):
        content = read_bytes(path, _MAX_DESCRIPTION_BYTES)
    try:
        found = TypeAdapter(ShardDescription).validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(f"{path}: {key}: {first['msg']}; {_PREPARE_AGAIN}") from None
    _check_description(found, path)
    return found


def _check_description(found: ShardDescription, path: Path) -> None:
    """Raise `DataError` unless the numbers fit each other."""
    if found.version != VERSION:
        problem = f"version {found.version} of the format; this program reads version {VERSION}"
        raise DataError(f"{path}: {problem}: prepare the data again")
    fits = found.samples_per_shard >= 1 and found.num_samples >= 2
    fits = fits and len(found.shards) == -(-found.num_samples // found.samples_per_shard)
    fits = fits and [file.name for file in found.shards] == [shard_name(i) for i in range(len(found.shards))]
    fits = fits and (found.encoding is None or 1 <= found.encoding.size <= _MAX_SIDE)
    fits = fits and (found.num_train is None or 0 < found.num_train < found.num_samples)
    if not fits:
        raise DataError(f"{path}: the numbers in it do not fit each other; {_PREPARE_AGAIN}")


def map_index(path: Path, num_samples: int) -> NDArray[Any]:
    """Map the records of an index into memory, read-only; nothing is read."""
    with _raise_read_errors(path), open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != num_samples * RECORD.itemsize or size == 0:
            expected = f"expected {num_samples * RECORD.itemsize:,} for {num_samples:,} samples"
            raise DataError(f"{path}: {size:,} bytes, {expected}; {_PREPARE_AGAIN}")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), RECORD)


def hash_file(path: Path, name: str) -> StoredFile:
    """Return size and sha256 of a file."""
    digest = hashlib.sha256()
    count = 0
    with open_regular_file(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            count += len(chunk)
    return StoredFile(name, count, digest.hexdigest())


@contextmanager
def _raise_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {_PREPARE_AGAIN}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from None
