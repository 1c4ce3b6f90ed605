"""Safe reader of npz files, and their writer: no unpickling, no decompression beyond the declared, allowed size."""

import math
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.files import atomic_write, open_regular_file
from paragan.storage import zip_files

MAX_BYTES = 16 << 30
_MAX_HEADER_BYTES = 4096


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in a file, in its order; none for the one array of a .npy file."""
    if path.suffix == ".npy":
        return []
    with zip_files.open_zip(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_array(path: Path, name: str, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Read one array; that of a .npy file whatever its name.

    Raises `DataError` if it is missing, damaged, of Python objects, or larger than `max_bytes`.
    """
    if path.suffix == ".npy":
        with zip_files.raise_data_errors(str(path)), open_regular_file(path) as file:
            return _read_npy(file, min(os.fstat(file.fileno()).st_size, max_bytes), str(path))
    with zip_files.open_zip(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if name not in members:
            listed = ", ".join(members) or "no arrays"
            raise DataError(f"{path}: no array {name!r}; the file has {listed}")
        zip_files.check_member(members[name], str(path), max_bytes)
        with archive.open(members[name]) as stream:
            return _read_npy(stream, members[name].file_size, f"{path}: {name}")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays of numbers to an .npz file, atomically."""
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        _write(archive, arrays)


def write_rows(
    path: Path,
    name: str,
    shape: tuple[int, ...],
    rows: Iterable[NDArray[np.uint8]],
    others: Callable[[], Mapping[str, NDArray[Any]]],
) -> None:
    """Write an array of bytes by pieces of its first axis, one in memory at a time, and other arrays after it."""
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            npy.write_array_header_2_0(member, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for piece in rows:
                member.write(np.ascontiguousarray(piece).tobytes())
        _write(archive, others())


def _write(archive: zipfile.ZipFile, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, array in arrays.items():
        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            npy.write_array(member, array, allow_pickle=False)


def _read_npy(stream: IO[bytes], num_bytes: int, where: str) -> NDArray[Any]:
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(stream, max_header_size=_MAX_HEADER_BYTES)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{where}: invalid npy header ({reason}); save the file again") from None
    if dtype.hasobject:
        raise DataError(
            f"{where}: Python objects are not supported, as they would have to be unpickled; save numbers or text"
        )
    declared = math.prod(shape) * dtype.itemsize
    remaining = num_bytes - stream.tell()
    if declared != remaining:
        raise DataError(
            f"{where}: {remaining:,} bytes follow the header, which declares {declared:,}; save the file again"
        )
    array = np.frombuffer(bytearray(stream.read(remaining)), dtype)  # writable, for torch
    return array.reshape(shape, order="F" if is_fortran else "C")
