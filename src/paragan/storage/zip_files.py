"""Safe reader of zip files, including npz: declared sizes are checked before unpacking.

Members must be stored or deflated, for which Python bounds the output of one read; bzip2 and LZMA
unpack whole blocks, in which a few kB can expand to gigabytes.
"""

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file

# Raised by the readers of zip and npy on damaged or hostile files.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
_NPY_ERRORS = (tokenize.TokenError, ValueError, TypeError, IndexError, struct.error)
_METHOD_NAMES = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
_MAX_RATIO = 200  # deflate reaches 1,032 on zeros
_ALWAYS_ALLOWED_BYTES = 64 << 20  # black images compress well, and this size is harmless


@contextmanager
def raise_data_errors(name: str) -> Iterator[None]:
    """Turn errors of reading a zip file into a `DataError` that names the file.

    Only reading belongs into the block: numpy's reader raises `ValueError` and `TypeError` too, as a bug would.
    """
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{name}: no such file; check its path") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{name}: cannot be read ({reason}); check the file") from None
    except (*_ZIP_ERRORS, *_NPY_ERRORS) as error:
        reason = str(error).splitlines()[0] if str(error) else "truncated"
        raise DataError(f"{name}: damaged zip file ({reason}); download or create it again") from None


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; errors while it is open become a `DataError`, as `raise_data_errors` says."""
    with raise_data_errors(str(path)), open_regular_file(path) as raw, zipfile.ZipFile(raw) as archive:
        yield archive


def read_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, max_bytes: int, limit: int | None = None
) -> bytes:
    """Read one member, or its first bytes; at most `max_bytes`, and never more than its entry declares."""
    check_member(info, name, max_bytes)
    with archive.open(info) as stream:
        return stream.read(info.file_size if limit is None else limit)


def check_member(info: zipfile.ZipInfo, name: str, max_bytes: int) -> None:
    """Raise `DataError` if the method, the declared size or the compression ratio is unsafe."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = _METHOD_NAMES.get(info.compress_type, f"method {info.compress_type}")
        raise DataError(
            f"{name}: {info.filename!r} is compressed with {method}; only stored and deflated "
            "members are supported: create the file again with plain `zip`, an npz with "
            "numpy.savez"
        )
    if info.file_size > max_bytes:
        problem = f"has {info.file_size:,} bytes unpacked, the limit is {max_bytes:,}"
    elif info.file_size > max(_ALWAYS_ALLOWED_BYTES, _MAX_RATIO * info.compress_size):
        ratio = info.file_size // max(info.compress_size, 1)
        limit = f"the limit is {_MAX_RATIO}-fold above {_ALWAYS_ALLOWED_BYTES:,} bytes"
        problem = f"is compressed {ratio:,}-fold, {limit}"
    else:
        return
    raise DataError(f"{name}: {info.filename!r} {problem}; is it a decompression bomb?")
