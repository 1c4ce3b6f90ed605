"""Streaming reader of tar archives, plain, gzip or xz, with a limit on the unpacked size."""

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

_XZ_MEMORY = 160 << 20  # bytes; a file may require gigabytes to unpack
_CHUNK_BYTES = 1 << 20


def read_members(
    path: Path, is_needed: Callable[[str], bool], max_bytes: int, max_member_bytes: int
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the needed regular files, in archive order; write nothing to disk.

    Raises `DataError` if the archive is missing or damaged, if it unpacks to more than `max_bytes`,
    or if a needed file has more than `max_member_bytes`.
    """
    try:
        with path.open("rb") as raw:
            stream = _BoundedReader(raw, path, max_bytes)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for entry in archive:
                    if entry.isfile() and is_needed(entry.name):
                        yield entry.name, _read_member(archive, entry, path, max_member_bytes)
            while stream.read(_CHUNK_BYTES):  # read to the end, where the checksum is
                pass
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check data.path") from None
    except lzma.LZMAError as error:
        raise DataError(f"{path}: damaged xz file ({error}); download it again") from None
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise DataError(f"{path}: damaged gzip file; download it again") from None
    except (tarfile.TarError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged tar archive ({error}); download it again") from None


def _read_member(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, max_bytes: int) -> bytes:
    if entry.size > max_bytes:
        raise DataError(
            f"{path}: {entry.name!r} has {entry.size:,} bytes, the limit is {max_bytes:,}; is it a decompression bomb?"
        )
    stream = archive.extractfile(entry)
    data = b"" if stream is None else stream.read()
    if len(data) != entry.size:
        raise DataError(f"{path}: the archive ends within {entry.name!r}; download it again")
    return data


class _BoundedReader(io.RawIOBase):
    """Reader of the unpacked bytes of a file; raises `DataError` after `max_bytes`."""

    def __init__(self, raw: IO[bytes], path: Path, max_bytes: int) -> None:
        self._path = path
        self._remaining = max_bytes
        self._max_bytes = max_bytes
        start = raw.read(6)
        raw.seek(0)
        self._stream: IO[bytes] = raw
        if start.startswith(b"\x1f\x8b"):
            self._stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
        elif start == b"\xfd7zXZ\x00":
            self._stream = _XzReader(raw)  # type: ignore[assignment]

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; tarfile never passes -1 for a stream."""
        data = self._stream.read(min(size, self._remaining + 1) if size >= 0 else self._remaining + 1)
        self._remaining -= len(data)
        if self._remaining < 0:
            raise DataError(
                f"{self._path}: unpacks to more than {self._max_bytes:,} bytes; is it a decompression bomb?"
            )
        return data


class _XzReader:
    """Reader of an xz stream with a memory limit, which `lzma.LZMAFile` does not support."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while not self._unpacker.eof:
            chunk = self._raw.read(_CHUNK_BYTES) if self._unpacker.needs_input else b""
            if self._unpacker.needs_input and not chunk:
                raise lzma.LZMAError("truncated")
            if data := self._unpacker.decompress(chunk, size):
                return data
        return b""
