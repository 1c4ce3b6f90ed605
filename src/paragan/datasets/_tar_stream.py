"""Tar archives as a stream, packed with gzip, xz or not at all: no more is ever unpacked than a limit."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from paragan.core.errors import DataError

_XZ_MEMORY = 160 << 20  # bytes; a file may ask for gigabytes to unpack it
_CHUNK_BYTES = 1 << 20


def read_members(path: Path, wanted: Callable[[str], bool], most: int, most_each: int) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted plain files, in the order of the archive; nothing is written to disk.

    Raises `DataError` where it is missing or damaged, where it unpacks to more than `most` bytes, or a wanted file
    has more than `most_each`.
    """
    try:
        with path.open("rb") as raw:
            stream = _BoundedReader(raw, path, most)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for entry in archive:
                    if entry.isfile() and wanted(entry.name):
                        yield entry.name, _read_member(archive, entry, path, most_each)
            while stream.read(_CHUNK_BYTES):  # what follows the last member: the checksum lies at the very end
                pass
    except FileNotFoundError:
        raise DataError(f"{path}: found no such file, expected a tar archive; check data.path") from None
    except lzma.LZMAError as error:
        raise DataError(f"{path}: found a damaged xz stream ({error}), expected an intact one; get it again") from None
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise DataError(f"{path}: found a damaged gzip stream, expected an intact one; get it again") from None
    except (tarfile.TarError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: found a damaged tar archive ({error}), expected an intact one; get it again"
        ) from None


def _read_member(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, most: int) -> bytes:
    if entry.size > most:
        found = f"{entry.name!r} with {entry.size:,} bytes"
        raise DataError(f"{path}: found {found}, expected at most {most:,}; is it a decompression bomb?")
    stream = archive.extractfile(entry)
    data = b"" if stream is None else stream.read()
    if len(data) != entry.size:
        raise DataError(f"{path}: found an archive that ends within {entry.name!r}, expected a whole one; get it again")
    return data


class _BoundedReader(io.RawIOBase):
    """The unpacked bytes of a file; more than `most` of them are an error."""

    def __init__(self, raw: IO[bytes], path: Path, most: int) -> None:
        self._path, self._left, self._most = path, most, most
        start = raw.read(6)
        raw.seek(0)
        self._stream: IO[bytes] = raw
        if start.startswith(b"\x1f\x8b"):
            self._stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
        elif start == b"\xfd7zXZ\x00":
            self._stream = _XzReader(raw)  # type: ignore[assignment]

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; -1 is not asked for by a streamed tar."""
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            what = f"more than {self._most:,} bytes unpacked, expected at most that"
            raise DataError(f"{self._path}: found {what}; is it a decompression bomb?")
        return data


class _XzReader:
    """An xz stream that may ask for no more than a fixed amount of memory, which `lzma.LZMAFile` cannot be told."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._unpacker = raw, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while not self._unpacker.eof:
            piece = self._raw.read(_CHUNK_BYTES) if self._unpacker.needs_input else b""
            if self._unpacker.needs_input and not piece:
                raise lzma.LZMAError("it ends too early")
            if data := self._unpacker.decompress(piece, size):
                return data
        return b""
