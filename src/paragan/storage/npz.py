"""Arrays in npz files. Nothing is unpickled, and nothing is unpacked that is not declared, counted and allowed."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.storage import zip_files

MAX_BYTES = 16 << 30
_MAX_HEADER_BYTES = 4096


def array_names(path: Path) -> list[str]:
    """The names of the arrays in a file, in its order."""
    with zip_files.open_zip(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_array(path: Path, name: str, most: int = MAX_BYTES) -> NDArray[Any]:
    """One array. Raises `DataError` where it is missing, damaged, of Python objects, or larger than `most` bytes."""
    with zip_files.open_zip(path) as archive:
        found = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if name not in found:
            raise DataError(f"{path}: found the arrays {', '.join(found) or '(none)'}, expected one named {name!r}")
        zip_files.check_member(found[name], str(path), most)
        return _read_member_array(archive, found[name], f"{path}: {name}")


def _read_member_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    with archive.open(info) as stream:
        try:
            version = npy.read_magic(stream)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, by_column, dtype = read_header(stream, max_header_size=_MAX_HEADER_BYTES)
        except ValueError as error:
            raise DataError(f"{where}: found no npy header ({str(error).splitlines()[0]}); save it again") from None
        if dtype.hasobject:
            raise DataError(f"{where}: found Python objects, expected numbers or text; they would have to be unpickled")
        declared = math.prod(shape) * dtype.itemsize
        follow = info.file_size - stream.tell()
        if declared != follow:
            raise DataError(f"{where}: found {follow:,} bytes after the header, expected the {declared:,} it declares")
        array = np.frombuffer(bytearray(stream.read()), dtype)  # bytearray: can be written to, as torch demands
    return array.reshape(shape, order="F" if by_column else "C")
