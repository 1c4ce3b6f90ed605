"""Images in a folder, a zip file or a tar file: their sorted names, and a reader."""

from __future__ import annotations

import os
import tarfile
import zlib
from functools import lru_cache
from pathlib import Path

from paragan.core.errors import DataError
from paragan.datasets import _image_decoding, _tar_stream, folder
from paragan.datasets._image_files import MAX_FILE_BYTES, FileReader

_MAX_UNPACKED_BYTES = 4 << 30  # of a tar file, which is held in memory


class TarReader:
    """Reader of a tar file; images, and files named in `texts`, are held in memory undecoded."""

    def __init__(self, path: Path, texts: frozenset[str] = frozenset()) -> None:
        self._name = str(path)

        def is_needed(name: str) -> bool:
            return is_visible(name) and (_is_image(name) or name.rpartition("/")[2] in texts)

        self.members = dict(_tar_stream.read_members(path, is_needed, _MAX_UNPACKED_BYTES, MAX_FILE_BYTES))

    def has(self, path: str) -> bool:
        return path in self.members

    def read(self, path: str) -> bytes:
        return self.members[path]

    def stamp(self, path: str) -> str:
        return str(zlib.crc32(self.members[path]))

    def where(self, path: str) -> str:
        return f"{self._name}: {path}"

    def folders(self, top: bytes) -> list[bytes]:
        """Return an empty list: a tar file records no empty folders."""
        return []


def list_images(
    path: str, texts: frozenset[str] = frozenset(), dataset: str = "paired"
) -> tuple[FileReader, list[bytes]]:
    """Return a reader and the sorted relative paths of the images.

    texts: names of other files to hold for reading. Raises `DataError` if the folder or file is
    missing or damaged, or has fewer than two images.
    """
    root = Path(path)
    if not (path and root.is_file() and is_tar(root)):
        return folder.list_images(path, dataset)
    status = root.stat()
    files = _open_tar(root, texts, status.st_size, status.st_mtime_ns)
    paths = sorted(os.fsencode(name) for name in files.members if _is_image(name))
    if len(paths) < 2:
        raise DataError(f"data.path: fewer than two images in {path!r}; check data.path")
    return files, paths


def is_tar(path: Path) -> bool:
    """Return whether a file is a tar archive, by its name (also if damaged) or by its content."""
    if ".tar" in path.name or path.suffix == ".tgz":
        return True
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error, ValueError):
        return False


def is_visible(name: str) -> bool:
    """Return whether neither the file nor one of its parent folders is hidden."""
    return not any(word.startswith((".", "__MACOSX")) for word in name.removeprefix("./").split("/"))


def _is_image(name: str) -> bool:
    return name.lower().endswith(_image_decoding.EXTENSIONS)


@lru_cache(maxsize=1)
def _open_tar(path: Path, texts: frozenset[str], size: int, changed_ns: int) -> TarReader:
    """Open a tar file; the result is cached because both splits read the same file."""
    return TarReader(path, texts)
