"""Zip files, npz files among them: no member is unpacked before its declared size has been looked at.

Members are stored or deflated. Python bounds what one read of those unpacks; bzip2 and LZMA unpack whole blocks, in
which a few kB can hold gigabytes.
"""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file

# What the readers of zip and npy raise on damaged or hostile files.
_DAMAGE_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, tokenize.TokenError),
    *(ValueError, TypeError, IndexError, struct.error),
)
_METHOD_NAMES = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
_MAX_RATIO = 200
_ALWAYS_ALLOWED_BYTES = 64 << 20  # bytes; black images pack well, and this many of them do no harm


@contextmanager
def raise_data_errors(name: str) -> Iterator[None]:
    """A `DataError` that names the file where what is read inside turns out damaged."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{name}: found no such file, expected a zip or npz file; check data.path") from None
    except OSError as error:
        raise DataError(f"{name}: found a file that cannot be read ({error.strerror or error}); check it") from None
    except _DAMAGE_ERRORS as error:
        told = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise DataError(f"{name}: found a damaged zip file ({told}), expected an intact one; get it again") from None


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip file, for as long as damage in it is told."""
    with raise_data_errors(str(path)), open_regular_file(path) as raw, zipfile.ZipFile(raw) as archive:
        yield archive


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, most: int) -> bytes:
    """All bytes of one member; at most `most`, and never more than its entry declares."""
    check_member(info, name, most)
    with archive.open(info) as stream:
        return stream.read(info.file_size)


def check_member(info: zipfile.ZipInfo, name: str, most: int) -> None:
    """Raises `DataError` where a member is compressed by a method that Python does not bound, declares more bytes than
    `most`, or packs too well to be true.
    """
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = _METHOD_NAMES.get(info.compress_type, f"method {info.compress_type}")
        raise DataError(
            f"{name}: {info.filename!r} is compressed with {method}, and only stored and deflated members are read; "
            "pack the file again with plain `zip`, an npz with numpy.savez"
        )
    if info.file_size > most:
        found, expected = f"{info.file_size:,} bytes unpacked", f"at most {most:,}"
    elif info.file_size > max(_ALWAYS_ALLOWED_BYTES, _MAX_RATIO * info.compress_size):
        ratio = info.file_size // max(info.compress_size, 1)
        found, expected = f"packed {ratio:,}-fold", f"at most {_MAX_RATIO}-fold above {_ALWAYS_ALLOWED_BYTES:,} bytes"
    else:
        return
    raise DataError(f"{name}: found {info.filename!r} with {found}, expected {expected}; is it a decompression bomb?")
