"""Reader of idx files (MNIST): a magic number, big-endian sizes, then bytes; plain or gzipped.

Source: Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits", section
"File formats".
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError

_BYTES_TYPE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_BYTES = 1 << 30


def read_idx(path: Path, num_axes: int) -> NDArray[np.uint8]:
    """Read the array of an idx file.

    Decompresses no more bytes than the header declares, at most 1 GiB. Raises `DataError` if the
    file is missing, damaged, truncated or too long, or is not an idx file of bytes.
    """
    try:
        with path.open("rb") as raw:
            is_gzipped = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            return _read_array(gzip.open(raw) if is_gzipped else raw, path, num_axes)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check data.path") from None
    except EOFError:
        raise _damage_error(path, "the gzip stream is truncated") from None
    except (gzip.BadGzipFile, zlib.error):
        raise _damage_error(path, "the gzip stream is damaged") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from None


def _read_array(stream: BinaryIO | gzip.GzipFile, path: Path, num_axes: int) -> NDArray[np.uint8]:
    shape = _read_shape(stream, path, num_axes)
    declared = math.prod(shape)
    if not 0 < declared <= _MAX_BYTES:
        raise _damage_error(path, f"the header declares {declared:,} bytes, the limit is {_MAX_BYTES:,}")
    # one more byte: detects excess data, and makes gzip verify its checksum
    data = stream.read(declared + 1)
    if len(data) != declared:
        count = f"only {len(data):,}" if len(data) < declared else "more"
        raise _damage_error(path, f"{count} bytes follow the header, which declares {declared:,}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _read_shape(stream: BinaryIO | gzip.GzipFile, path: Path, num_axes: int) -> tuple[int, ...]:
    expected = bytes((0, 0, _BYTES_TYPE, num_axes))
    if (magic := stream.read(4)) != expected:
        number = magic.hex() or "(missing)"
        raise _damage_error(
            path, f"the magic number is {number} instead of {expected.hex()} (idx, bytes, {num_axes} axes)"
        )
    sizes = stream.read(4 * num_axes)
    if len(sizes) != 4 * num_axes:
        raise _damage_error(path, f"the header has {4 + len(sizes)} bytes instead of {4 + 4 * num_axes}")
    return struct.unpack(f">{num_axes}I", sizes)


def _damage_error(path: Path, problem: str) -> DataError:
    return DataError(f"{path}: {problem}; download the file again")
