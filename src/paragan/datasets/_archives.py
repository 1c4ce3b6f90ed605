"""The pictures of a folder, a zip or a tar file: their names, sorted, and how to read them."""

from __future__ import annotations

import os
import tarfile
import zlib
from functools import lru_cache
from pathlib import Path

from paragan.core.errors import DataError
from paragan.datasets import _image_decoding, _tar_stream, folder
from paragan.datasets._image_files import MAX_FILE_BYTES, FileReader

_MOST_UNPACKED = 4 << 30  # bytes of a tar file, which is held in memory


class TarReader:
    """Members of a tar file, packed or not; pictures, and files called one of `texts`, are held as they lie in it."""

    def __init__(self, path: Path, texts: frozenset[str] = frozenset()) -> None:
        self._name = str(path)

        def wanted(name: str) -> bool:
            return is_visible(name) and (_is_image(name) or name.rpartition("/")[2] in texts)

        self.held = dict(_tar_stream.read_members(path, wanted, _MOST_UNPACKED, MAX_FILE_BYTES))

    def has(self, path: str) -> bool:
        return path in self.held

    def read(self, path: str) -> bytes:
        return self.held[path]

    def stamp(self, path: str) -> str:
        return str(zlib.crc32(self.held[path]))

    def where(self, path: str) -> str:
        return f"{self._name}: {path}"

    def folders(self, top: bytes) -> list[bytes]:
        """None: only images of a tar file are held, and what they lie in."""
        return []


def list_images(path: str, texts: frozenset[str] = frozenset()) -> tuple[FileReader, list[bytes]]:
    """The pictures' relative paths, sorted, and how to read them. texts: names of other files that will be read.

    Raises `DataError` where there is no such folder or file, it is damaged, or holds fewer than two pictures.
    """
    root = Path(path)
    if not (path and root.is_file() and is_tar(root)):
        return folder.list_images(path)
    status = root.stat()
    files = _open_tar(root, texts, status.st_size, status.st_mtime_ns)
    paths = sorted(os.fsencode(name) for name in files.held if _is_image(name))
    if len(paths) < 2:
        raise DataError(f"data.path: found fewer than two pictures in {path!r}, expected more; check data.path")
    return files, paths


def is_tar(path: Path) -> bool:
    """By its name, so that a damaged one is told as such, or by what is in it."""
    if ".tar" in path.name or path.suffix == ".tgz":
        return True
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error, ValueError):
        return False


def is_visible(name: str) -> bool:
    """Whether neither the file nor a folder that it lies in is hidden."""
    return not any(word.startswith((".", "__MACOSX")) for word in name.removeprefix("./").split("/"))


def _is_image(name: str) -> bool:
    return name.lower().endswith(_image_decoding.EXTENSIONS)


@lru_cache(maxsize=1)
def _open_tar(path: Path, texts: frozenset[str], size: int, changed_ns: int) -> TarReader:
    """Both parts of a data set read the same file."""
    return TarReader(path, texts)
