"""Readers of tar archives: a stream of plain or compressed ones in bounded memory, and headers of plain ones."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file

_XZ_MEMORY = 160 << 20  # bytes; a file may require gigabytes to unpack
_CHUNK_BYTES = 1 << 20
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_HEADER_BYTES = 256 << 10  # of the extended headers of a member, which tarfile holds
_LONG_HEADERS = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
_LONG_HEADERS |= {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}


def read_members(
    path: Path, is_needed: Callable[[str], bool], max_bytes: int, max_member_bytes: int, links: list[str] | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the needed regular files, in archive order; write nothing to disk.

    links: receives the names of hard and symbolic links, which are not followed. Raises `DataError` if the archive is
    missing or damaged, if it unpacks to more than `max_bytes`, or if a needed file has more than `max_member_bytes`.
    """
    with _raise_data_errors(path), path.open("rb") as raw:
        stream = _BoundedReader(raw, path, max_bytes)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
            for entry in _regular_files(archive, links):
                if is_needed(entry.name):
                    if entry.size > max_member_bytes:
                        raise DataError(
                            f"{path}: {entry.name!r} has {entry.size:,} bytes, the limit is {max_member_bytes:,}; is "
                            "it a decompression bomb?"
                        )
                    yield entry.name, _read_member(archive, entry, path)
        while stream.read(_CHUNK_BYTES):  # read to the end, where the checksum is
            pass


def plain_members(path: Path, links: list[str]) -> Iterator[tarfile.TarInfo]:
    """Yield the header of each regular file of an uncompressed archive.

    Contents are not read. links: receives the names of links. Raises `DataError` if the archive is damaged or cut.
    """
    with (
        _raise_data_errors(path),
        open_regular_file(path) as file,
        tarfile.open(fileobj=file, mode="r:", tarinfo=_Header) as archive,
    ):
        for entry in _regular_files(archive, links):
            # a sparse file of a pax header, whose bytes are not those of the file; `_Header` refuses GNU's
            if entry.sparse is None:  # type: ignore[attr-defined]
                yield entry


class _Header(tarfile.TarInfo):
    """A header of bounded length: tarfile reads extended ones in one piece, and maps of sparse files in any number."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            entry = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:  # which tarfile takes for the end of the archive
            raise tarfile.ReadError(f"it ends early: {error}") from None
        if entry.type == tarfile.GNUTYPE_SPARSE or (entry.type in _LONG_HEADERS and entry.size > _MAX_HEADER_BYTES):
            raise tarfile.TarError(f"{entry.name!r} is a sparse file, or its header has {entry.size:,} bytes")
        return entry


def _regular_files(archive: tarfile.TarFile, links: list[str] | None) -> Iterator[tarfile.TarInfo]:
    """Yield headers, of which none is held: 1 KB per file."""
    while (entry := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]
        archive.pax_headers.clear()  # type: ignore[attr-defined]  # global ones, of any number; none is needed
        if entry.isreg():
            yield entry
        elif links is not None and (entry.issym() or entry.islnk()):
            links.append(entry.name)


def is_tar(path: Path, is_plain: bool = False) -> bool:
    """Return whether a file is a tar file. is_plain: an uncompressed one."""
    try:
        with open_regular_file(path) as file:
            if is_plain:  # modes as literals, so that a test of the source sees that nothing is written
                tarfile.open(fileobj=file, mode="r:", tarinfo=_Header).close()
            elif not file.peek(4).startswith(_ZSTD_MAGIC):  # which not every Python unpacks
                tarfile.open(fileobj=file, mode="r:*", tarinfo=_Header).close()
            return True
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, lzma.LZMAError, tarfile.TarError):
        return False


def _read_member(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> bytes:
    stream = archive.extractfile(entry)
    data = b"" if stream is None else stream.read()
    if len(data) != entry.size:
        raise DataError(f"{path}: the archive ends within {entry.name!r}; download or copy it again")
    return data


@contextmanager
def _raise_data_errors(path: Path) -> Iterator[None]:
    """Turn errors of the readers of archives into a `DataError` that names the archive."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check data.path") from None
    except (DataError, MemoryError):
        raise
    except Exception as error:  # gzip, bz2, lzma, zstandard and tarfile have no common base class
        if isinstance(error, OSError) and error.errno is not None:  # the disk, not the file
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: damaged archive ({reason}); download or copy it again") from None


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
        elif start.startswith(b"BZh"):
            self._stream = bz2.BZ2File(raw)  # type: ignore[assignment]
        elif start == b"\xfd7zXZ\x00":
            self._stream = _XzReader(raw)  # type: ignore[assignment]
        elif start.startswith(_ZSTD_MAGIC):
            self._stream = _open_zstd(raw, path)

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; tarfile never passes -1 for a stream."""
        data = self._stream.read(min(size, self._remaining + 1) if size >= 0 else self._remaining + 1)
        self._remaining -= len(data)
        if self._remaining < 0:
            raise DataError(
                f"{self._path}: unpacks to more than {self._max_bytes:,} bytes; is it a decompression bomb?"
            )
        return data


def _open_zstd(raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return the unpacked stream. Raises `DataError` if neither Python (3.14) nor a package can unpack it."""
    for module, name in (("compression.zstd", "ZstdFile"), ("backports.zstd", "ZstdFile"), ("zstandard", "open")):
        with suppress(ImportError):
            unpacked: IO[bytes] = getattr(importlib.import_module(module), name)(raw)
            return unpacked
    raise DataError(f"{path}: reading zstd needs the package zstandard; install it with `pip install zstandard`")


class _XzReader:
    """Reader of xz streams with a memory limit, which `lzma.LZMAFile` does not support."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:  # tarfile never passes 0, which would read all
        data = b""
        while not data:
            chunk = self._raw.read(_CHUNK_BYTES) if self._unpacker.needs_input else b""
            if self._unpacker.eof:
                chunk = self._next_stream()
                if not chunk:
                    return b""
                self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
            elif self._unpacker.needs_input and not chunk:
                raise lzma.LZMAError("truncated")
            data = self._unpacker.decompress(chunk, size)
        return data

    def _next_stream(self) -> bytes:
        """Return the first bytes of the stream after this one, past the zeros between streams; empty at the end."""
        chunk = self._unpacker.unused_data.lstrip(b"\0")
        while not chunk and (more := self._raw.read(_CHUNK_BYTES)):
            chunk = more.lstrip(b"\0")
        return chunk
