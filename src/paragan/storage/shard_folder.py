"""Shards of encoded images: tar files with an index, as `data prepare` writes them; random access.

A folder holds `shard-000000.tar` and so on with `samples_per_shard` samples each, the last with the
rest; `index.bin` with 48 bytes per sample (`RECORD`), mapped into memory; and `dataset.json`. The
place of a sample follows from its row and its record alone, so no tar header is ever read.
"""

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paragan.core.addresses import is_url
from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.core.option_types import ImageSize, height_and_width
from paragan.core.printable import counted
from paragan.storage.byte_store import (
    PREPARE_AGAIN,
    ByteRange,
    ByteStore,
    LocalStore,
    MissingFileError,
    StoredFile,
    raise_read_errors,
)
from paragan.storage.remote_store import open_remote

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
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How the images of shards were made. quality: of JPEG, 1 to 100. pillow: its version."""

    size: ImageSize
    channels: int = 3
    crop: str = "center"
    background: int = 255
    filter: str = "lanczos"
    format: str = "png"
    quality: int | None = None
    pillow: str = ""
    range: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
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
    """Random access to the samples of shards in a folder or at an address (`open_remote`).

    index: records (N,) of type `RECORD`, mapped. cache_bytes: limit of the disk cache of remote shards. Raises
    `DataError` if the description or the size of the index is invalid. Several threads may read at the same time.
    """

    def __init__(self, path: str | Path, cache_bytes: int = 0) -> None:
        self._store = open_remote(str(path), cache_bytes) if is_url(str(path)) else LocalStore(Path(path))
        self.address = self._store.address
        self.description = read_description(self._store)
        self.index = map_index(self._store.local_copy(self.description.index), self.description.num_samples)
        self._store.cache_blocks(self.description.shards)

    def __len__(self) -> int:
        return self.description.num_samples

    def locate(self, row: int) -> tuple[StoredFile, int, int]:
        """Return the shard of a sample, and offset and number of bytes of its image in it."""
        record = self.index[row]
        shard = self.description.shards[row // self.description.samples_per_shard]
        return shard, int(record["block"]) * BLOCK_BYTES, int(record["num_bytes"])

    def read(self, row: int) -> bytes:
        """Return the image of a sample; `DataError` that names it if its sha256 differs."""
        return self.read_rows([row])[0]

    def read_rows(self, rows: Sequence[int]) -> list[bytes]:
        """Return the images of samples, as `read`; neighbours in a remote shard share a request."""
        ranges = [self._range(row) for row in rows]
        contents = self._store.read_ranges(ranges)
        for attempt in range(1, self._store.num_attempts + 1):
            damaged = [place for place, row in enumerate(rows) if not self._is_intact(row, contents[place])]
            if not damaged:
                return contents
            if attempt == self._store.num_attempts:
                break
            damaged_ranges = [ranges[place] for place in damaged]
            self._store.forget(damaged_ranges)
            for place, content in zip(damaged, self._store.read_ranges(damaged_ranges), strict=True):
                contents[place] = content
        first = damaged[0]
        is_cut = len(contents[first]) < ranges[first].num_bytes
        problem = "the shard is cut" if is_cut else "the bytes differ from the sha256 in the index"
        raise DataError(f"{self.where(rows[first])}: {problem}; {PREPARE_AGAIN}")

    def where(self, row: int) -> str:
        """Return shard and sample in messages."""
        shard = self.description.shards[row // self.description.samples_per_shard]
        return f"{self._store.where(shard.name)}: sample {sample_key(row)}"

    def damaged_files(self) -> Iterator[str]:
        """Yield the paths of index and shards whose size or sha256 differs from the description."""
        for file in (self.description.index, *self.description.shards):
            if not self._is_whole(file):
                yield self._store.where(file.name)

    def _range(self, row: int) -> ByteRange:
        shard, offset, num_bytes = self.locate(row)
        if offset + num_bytes > shard.num_bytes or not 0 < num_bytes <= MAX_SAMPLE_BYTES:
            raise DataError(f"{self.where(row)}: {INDEX} is damaged; {PREPARE_AGAIN}")
        return ByteRange(shard.name, offset, offset + num_bytes)

    def _is_intact(self, row: int, content: bytes) -> bool:
        return hashlib.sha256(content).digest() == self.index[row]["sha256"].tobytes()

    def _is_whole(self, file: StoredFile) -> bool:
        """Return whether the bytes of a file are those of the description."""
        digest = hashlib.sha256()
        try:
            if self._store.size(file.name) != file.num_bytes:
                return False
            for start in range(0, file.num_bytes, _CHUNK_BYTES):
                chunk = ByteRange(file.name, start, min(start + _CHUNK_BYTES, file.num_bytes))
                digest.update(self._store.read_ranges([chunk])[0])
        except DataError:
            return False
        return digest.hexdigest() == file.sha256


def sample_key(row: int) -> str:
    """Return the name of a sample in its shard, without a suffix."""
    return f"{row:09d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:06d}.tar"


def has_shards(path: str) -> bool:
    """Return whether this is an address, or a folder of shards whose preparation may be unfinished."""
    folder = Path(path)
    has_files = (folder / DESCRIPTION).is_file() and (folder / INDEX).is_file()
    return is_url(path) or has_files or (folder / UNFINISHED).is_dir()


def read_description(store: ByteStore) -> ShardDescription:
    """Read `dataset.json`. Raises `DataError` if it is missing, invalid or of another version."""
    from pydantic import TypeAdapter, ValidationError

    where = store.where(DESCRIPTION)
    try:
        content = store.read_file(DESCRIPTION, _MAX_DESCRIPTION_BYTES)
    except MissingFileError:
        raise DataError(_missing_description(store)) from None
    try:
        description = TypeAdapter(ShardDescription).validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(f"{where}: {key}: {first['msg'].removeprefix('Value error, ')}; {PREPARE_AGAIN}") from None
    _check_description(description, where)
    return description


def _missing_description(store: ByteStore) -> str:
    place = store.address
    if not isinstance(store, LocalStore):
        return f"{place}: no {DESCRIPTION}; upload the folder that `{program_command()} data prepare SRC OUT` writes"
    if (Path(place) / UNFINISHED).is_dir():
        command = f"{program_command()} data prepare SRC {place}"
        return f"{place}: the preparation of the shards was stopped; finish it with `{command}`"
    return f"{place}: no {DESCRIPTION}; make shards with `{program_command()} data prepare SRC OUT`"


def _check_description(description: ShardDescription, where: str) -> None:
    """Raise `DataError` unless the numbers fit each other."""
    if description.version != VERSION:
        raise DataError(
            f"{where}: version {description.version} of the format; this program reads version {VERSION}: "
            "prepare the data again"
        )
    names = [file.name for file in description.shards]
    encoding = description.encoding
    fits = (
        description.samples_per_shard >= 1
        and description.num_samples >= 2
        and len(names) == -(-description.num_samples // description.samples_per_shard)
        and names == [shard_name(number) for number in range(len(names))]
        and description.index.name == INDEX
        and (encoding is None or max(height_and_width(encoding.size)) <= _MAX_SIDE)
        and (description.num_train is None or 0 < description.num_train < description.num_samples)
    )
    if not fits:
        raise DataError(f"{where}: the numbers in it do not fit each other; {PREPARE_AGAIN}")
    num_bytes = description.num_samples * RECORD.itemsize
    if description.index.num_bytes != num_bytes:  # before a byte of a remote index is fetched
        expected = f"expected {num_bytes:,} for {counted(description.num_samples, 'sample')}"
        raise DataError(f"{where}: {INDEX}: {description.index.num_bytes:,} bytes, {expected}; {PREPARE_AGAIN}")


def map_index(path: Path, num_samples: int) -> NDArray[Any]:
    """Map the records of an index into memory, read-only; nothing is read."""
    with raise_read_errors(path), open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != num_samples * RECORD.itemsize or size == 0:
            expected = f"expected {num_samples * RECORD.itemsize:,} for {counted(num_samples, 'sample')}"
            raise DataError(f"{path}: {size:,} bytes, {expected}; {PREPARE_AGAIN}")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), RECORD)
