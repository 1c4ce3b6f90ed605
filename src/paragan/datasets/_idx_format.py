"""The idx format of the MNIST files: a magic word, big-endian sizes, then the bytes; plain or gzipped.

Source: Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits", section "File formats".
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
_MOST_BYTES = 1 << 30


def read_idx(path: Path, num_axes: int) -> NDArray[np.uint8]:
    """The byte array in an idx file. Never unpacks more than its header declares, which may be 1 GiB.

    Raises `DataError` where the file is missing, damaged, truncated, too long, or holds something else.
    """
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            return _read_array(gzip.open(raw) if zipped else raw, path, num_axes)
    except FileNotFoundError:
        raise DataError(f"{path}: found no such file, expected an idx file; check data.path") from None
    except EOFError:
        raise _damage_error(path, "a gzip stream that ends too early", "a whole one") from None
    except (gzip.BadGzipFile, zlib.error):
        raise _damage_error(path, "a gzip stream that does not unpack", "an intact one") from None
    except OSError as error:
        raise DataError(f"{path}: found a file that cannot be read ({error.strerror}), expected an idx file") from None


def _read_array(stream: BinaryIO | gzip.GzipFile, path: Path, num_axes: int) -> NDArray[np.uint8]:
    shape = _read_shape(stream, path, num_axes)
    declared = math.prod(shape)
    if not 0 < declared <= _MOST_BYTES:
        raise _damage_error(path, f"a header that declares {declared:,} bytes", f"1 to {_MOST_BYTES:,}")
    data = stream.read(declared + 1)  # one more: notices what the header does not declare, and makes gzip check its sum
    if len(data) != declared:
        found = f"only {len(data):,}" if len(data) < declared else "more"
        raise _damage_error(path, f"{found} bytes after the header", f"the {declared:,} that it declares")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _read_shape(stream: BinaryIO | gzip.GzipFile, path: Path, num_axes: int) -> tuple[int, ...]:
    expected = bytes((0, 0, _BYTES_TYPE, num_axes))
    if (magic := stream.read(4)) != expected:
        raise _damage_error(
            path, f"the magic word {magic.hex() or '(nothing)'}", f"{expected.hex()} (idx, bytes, {num_axes} axes)"
        )
    sizes = stream.read(4 * num_axes)
    if len(sizes) != 4 * num_axes:
        raise _damage_error(path, f"a header of {4 + len(sizes)} bytes", f"{4 + 4 * num_axes}")
    return struct.unpack(f">{num_axes}I", sizes)


def _damage_error(path: Path, found: str, expected: str) -> DataError:
    return DataError(f"{path}: found {found}, expected {expected}; get the file again")
