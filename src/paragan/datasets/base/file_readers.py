"""Readers of the files in a folder, a zip file or a tar file, and the list of the images in it."""

from __future__ import annotations

import os
import threading
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from paragan.core.addresses import is_url
from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.datasets import _image_paths, _tar_files
from paragan.storage import zip_files

MAX_FILE_BYTES = 256 << 20
_MAX_UNPACKED_BYTES = 4 << 30  # of a tar file, which is held in memory
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".xz")
_MAX_NAMED = 3
_FORMATS = "png jpg jpeg webp bmp gif tif tiff"


class FileReader(ABC):
    """Base class of folders and archives whose files can be read.

    name: path of the folder or archive. notices: warnings about what `images` has ignored.
    """

    notices: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self.name = str(path)

    @abstractmethod
    def images(self) -> list[bytes]:
        """Return the sorted relative paths of all images, by extension, without hidden files."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Return whether the file exists."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises `DataError` if it is missing, damaged or too large."""

    @abstractmethod
    def stamp(self, path: str) -> str:
        """Return size and modification time of a file, or its checksum."""

    def folders(self, top: bytes) -> list[bytes]:
        """Return the names of the visible folders in `top`, also of empty ones; none of an archive."""
        return []

    def where(self, path: str) -> str:
        """Return the name of the file in messages."""
        return f"{self.name}: {path}"


class FolderReader(FileReader):
    """Reader of the files in a folder."""

    def images(self, top: bytes = b"") -> list[bytes]:
        """Return the sorted relative paths of all images in `top`, which is empty or ends with a slash."""
        links: list[bytes] = []
        paths = [top + path for path in _image_paths.find_images(Path(self.name, os.fsdecode(top)), links)]
        if links:
            named = ", ".join(repr(os.fsdecode(top + link)) for link in sorted(links)[:_MAX_NAMED])
            self.notices = (f"links that lead to no file are ignored: {len(links):,} ({named})",)
        return paths

    def has(self, path: str) -> bool:
        return os.path.isfile(self.where(path))

    def read(self, path: str) -> bytes:
        where = self.where(path)
        try:
            with open(where, "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                if size <= MAX_FILE_BYTES:
                    return stream.read(size)
        except OSError as error:
            raise DataError(f"{where}: cannot be read ({error.strerror}); check the file") from None
        raise DataError(f"{where}: the file has {size:,} bytes, the limit is {MAX_FILE_BYTES:,}; make it smaller")

    def stamp(self, path: str) -> str:
        try:
            status = os.stat(self.where(path))
        except OSError:
            return "missing"
        return f"{status.st_size} {status.st_mtime_ns}"

    def folders(self, top: bytes) -> list[bytes]:
        with os.scandir(os.path.join(os.fsencode(self.name), top)) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(b".")]

    def where(self, path: str) -> str:
        return os.path.join(self.name, path)


class ZipReader(FileReader):
    """Reader of the members of a zip file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = threading.Lock()  # the members share one file position
        # opening a pipe would block
        with zip_files.raise_data_errors(self.name), open_regular_file(path):
            self._archive = zipfile.ZipFile(path)

    def images(self) -> list[bytes]:
        return _sorted_images(self._archive.namelist())

    def has(self, path: str) -> bool:
        return path in self._archive.NameToInfo

    def read(self, path: str) -> bytes:
        with self._lock, zip_files.raise_data_errors(self.name):
            return zip_files.read_member(self._archive, self._archive.getinfo(path), self.name, MAX_FILE_BYTES)

    def stamp(self, path: str) -> str:
        return str(self._archive.getinfo(path).CRC)


class TarReader(FileReader):
    """Reader of a tar file; images, and files named in `texts`, are held in memory undecoded."""

    def __init__(self, path: Path, texts: frozenset[str] = frozenset()) -> None:
        super().__init__(path)

        def is_needed(name: str) -> bool:
            encoded = os.fsencode(name)
            is_read = _image_paths.is_image(encoded) or name.rpartition("/")[2] in texts
            return is_read and not _image_paths.is_hidden(encoded.removeprefix(b"./"))

        members = _tar_files.read_members(path, is_needed, _MAX_UNPACKED_BYTES, MAX_FILE_BYTES)
        self._members = {name.removeprefix("./"): data for name, data in members}

    def images(self) -> list[bytes]:
        return _sorted_images(self._members)

    def has(self, path: str) -> bool:
        return path in self._members

    def read(self, path: str) -> bytes:
        return self._members[path]

    def stamp(self, path: str) -> str:
        return str(zlib.crc32(self._members[path]))


def list_images(
    path: str,
    dataset: str = "folder",
    texts: frozenset[str] = frozenset(),
    option: str = "data.path",
    min_images: int = 2,
) -> tuple[FileReader, list[bytes]]:
    """Return a reader and the sorted relative paths of the images in a folder, zip or tar file.

    dataset, option: names in messages. texts: names of other files of a tar file to hold for
    reading. Raises `DataError` if the folder or file is missing or damaged, or has fewer than
    `min_images` images (1 or 2).
    """
    check_path(path, dataset, option)
    root = Path(path)
    files = _open(root, texts)
    if files is None:
        raise DataError(
            f"{option}: {path!r} is not a folder, .zip or .tar file of images; pass the folder that contains them"
        )
    paths = files.images()
    if len(paths) < min_images:
        count = "only one image" if paths else f"no images ({_FORMATS})"
        required = "at least one is required" if min_images == 1 else "at least two are required"
        archives = sorted(str(file) for file in root.glob("*") if file.suffix in _ARCHIVES) if root.is_dir() else []
        hint = f"pass the archive: {option}={archives[0]}" if archives else f"check {option}"
        hint = "; ".join((*files.notices, hint))
        raise DataError(f"{option}: {count} in {path!r}, {required}; {hint}")
    return files, paths


def check_path(path: str, dataset: str = "folder", option: str = "data.path") -> None:
    """Raise `DataError` unless there is a local file or folder of this name; arguments of `list_images`."""
    if is_url(path):
        raise DataError(
            f"{option}: data set {dataset!r} reads local files; pass data.name=shards for shards at an address"
        )
    if not path:
        raise DataError(f"{option} is required for dataset {dataset!r}; pass {option}=DIR")
    if not Path(path).exists():
        hint = "check its path" if option == "SRC" else f"pass {option}=DIR"
        raise DataError(f"{option}: {describe_missing(path)}; {hint}")


def describe_missing(path: str) -> str:
    """Describe a folder that does not exist, and where it was looked for."""
    return f"no folder {path!r}" if os.path.isabs(path) else f"no folder {path!r} in {os.getcwd()}"


def _open(root: Path, texts: frozenset[str]) -> FileReader | None:
    """Open a folder or archive; an archive by its suffix first, to report it if it is damaged."""
    if root.is_dir():
        return FolderReader(root)
    if not root.is_file():
        return None
    if root.suffix.lower() == ".zip" or zipfile.is_zipfile(root):
        return ZipReader(root)
    if ".tar" in root.name or root.suffix == ".tgz" or _tar_files.is_tar(root):
        status = root.stat()
        return _open_tar(root, texts, status.st_size, status.st_mtime_ns)
    return None


@lru_cache(maxsize=1)
def _open_tar(path: Path, texts: frozenset[str], size: int, changed_ns: int) -> TarReader:
    """Open a tar file; the result is cached because both splits read the same file."""
    return TarReader(path, texts)


def _sorted_images(names: Iterable[str]) -> list[bytes]:
    encoded = map(os.fsencode, names)
    return sorted(name for name in encoded if _image_paths.is_image(name) and not _image_paths.is_hidden(name))
