"""Byte ranges of the files of a local folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paragan.core.errors import DataError
from paragan.core.files import read_bytes
from paragan.storage.byte_store import ByteRange, ByteStore, MissingFileError, StoredFile


class LocalStore(ByteStore):
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self._folder = folder

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        return [self._read(each) for each in ranges]

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
        with raise_read_errors(path):
            handle = os.open(path, os.O_RDONLY)
            try:
                return os.pread(handle, wanted.num_bytes, wanted.start)
            finally:
                os.close(handle)


@contextmanager
def raise_read_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a `DataError` that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file; {PREPARE_AGAIN}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from None


PREPARE_AGAIN = "copy the file again, or prepare the data again"
