"""Byte ranges of files in one place: a local folder (here), a web server or an object store (`remote_store`)."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import DataError
from paragan.core.files import is_sha256, read_bytes

PREPARE_AGAIN = "copy the file again, or prepare the data again"


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `stop` (excluded) of the file `name`."""

    name: str
    start: int
    stop: int

    @property
    def num_bytes(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


@dataclass(frozen=True)
class StoredFile:
    """Name, size and sha256 of a file.

    Raises `ValueError` for others than a plain name, a size and 64 hexadecimal digits: descriptions come
    from other people, and caches make paths of names and hashes.
    """

    name: str
    num_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name or not self.name:
            raise ValueError(f"name {self.name!r} is not the plain name of a file")
        if self.num_bytes < 0:
            raise ValueError(f"num_bytes {self.num_bytes} is negative")
        if not is_sha256(self.sha256):
            raise ValueError(f"sha256 {self.sha256[:100]!r} does not have 64 hexadecimal digits")


class MissingFileError(DataError):
    """A store has no file of this name."""


class ByteStore(ABC):
    """Base class of files in one place. address: of the place, as messages name it, without secrets.

    num_attempts: number of reads by `shard_folder` after which bytes that differ from their sha256 are final; before
    each but the first, `forget` drops local copies. Several threads may read at the same time.
    """

    address: str
    num_attempts: int = 1

    @abstractmethod
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Return the bytes of each range, in their order.

        A range beyond the end of a file gives fewer bytes, or `DataError`. Raises `DataError` if a file cannot be read.
        """

    @abstractmethod
    def read_file(self, name: str, max_bytes: int) -> bytes:
        """Return a whole file; `DataError` above `max_bytes`, `MissingFileError` without the file."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the number of bytes of a file."""

    @abstractmethod
    def local_copy(self, file: StoredFile) -> Path:
        """Return a path at which the whole file can be opened.

        A copy of a remote file has its size and sha256; a local file is not compared.
        """

    def cache_blocks(self, files: Sequence[StoredFile]) -> None:
        """Cache blocks of these files on the local disk, if this store is remote."""
        return

    def forget(self, ranges: Sequence[ByteRange]) -> None:
        """Drop local copies of these ranges; the next read returns them from their origin."""
        return

    def where(self, name: str) -> str:
        """Return path or address of a file in messages."""
        return f"{self.address}/{name}"


class LocalStore(ByteStore):
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self._folder = folder

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        return [self._read(wanted) for wanted in ranges]

    def read_file(self, name: str, max_bytes: int) -> bytes:
        with raise_read_errors(self._folder / name):
            return read_bytes(self._folder / name, max_bytes)

    def size(self, name: str) -> int:
        with raise_read_errors(self._folder / name):
            return (self._folder / name).stat().st_size

    def local_copy(self, file: StoredFile) -> Path:
        return self._folder / file.name

    def _read(self, wanted: ByteRange) -> bytes:
        path = self._folder / wanted.name
        with raise_read_errors(path), open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), wanted.num_bytes, wanted.start)


@contextmanager
def raise_read_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a `DataError` that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file; {PREPARE_AGAIN}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from None
