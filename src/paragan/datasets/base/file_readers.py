"""Readers of the files in a folder, a zip file or tar files, and the images among them."""

from __future__ import annotations

import os
import posixpath
import threading
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.datasets import _image_paths, _tar_files
from paragan.datasets._image_formats import START_BYTES, has_image_extension, is_image_file, kind_of_file
from paragan.datasets._split_names import split_folder
from paragan.storage import zip_files

MAX_FILE_BYTES = 256 << 20
_MAX_UNPACKED_BYTES = 4 << 30  # of compressed tar files, which are held in memory
_MAX_NAMED = 3
_MAX_NAME_LENGTH = 4096  # as of paths in Linux
_ENCRYPTED = 1  # flag of a member of a zip file


class FileReader(ABC):
    """Base class of folders and archives whose files can be read.

    name: path of the folder or archive. Set by `find`: notices: warnings about links; ignored:
    number of the other files by suffix; label_files: sorted paths of those that may hold labels.
    endings: of the files to read instead of images, in lower case.
    """

    endings: tuple[bytes, ...] = ()

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.notices: tuple[str, ...] = ()
        self.ignored: Counter[str] = Counter()
        self.label_files: list[bytes] = []

    @abstractmethod
    def find(self) -> list[bytes]:
        """Return the sorted relative paths of all images, or files with `endings`; without hidden ones."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Return whether the file exists."""

    @abstractmethod
    def read(self, path: str, limit: int | None = None) -> bytes:
        """Return the bytes, or the first ones, of a file that it `has`. Raises `DataError` if damaged or too large."""

    @abstractmethod
    def stamp(self, path: str) -> str:
        """Return size and modification time of a file, or its checksum."""

    def _start(self, path: str) -> bytes:
        """Return the first `START_BYTES` of a file, empty if it cannot be read."""
        try:
            return self.read(path, START_BYTES)
        except DataError:
            return b""

    def folders(self, top: bytes) -> list[bytes]:
        """Return the names of the visible folders in `top`, also of empty ones; none of an archive."""
        return []

    def where(self, path: str) -> str:
        """Return the name of the file in messages."""
        return f"{self.name}: {path}"

    def set_read(self, path: bytes) -> None:
        """Count a file as read after all, such as one with labels."""
        self.ignored[kind_of_file(path)] -= 1

    def _notice_ignored(self, kind: str, names: list[str]) -> None:
        """Set the notices to one about these files, if there are any."""
        if names:
            named = ", ".join(map(repr, sorted(names)[:_MAX_NAMED]))
            self.notices = (f"{kind} are ignored: {len(names):,} ({named})",)

    def _sort(self, paths: Iterable[bytes]) -> list[bytes]:
        """Return the images among the visible ones of these paths, sorted; note the others."""
        images = []
        self.ignored.clear()
        self.label_files = []
        for path in paths:
            if self.endings:
                is_read = path.lower().endswith(self.endings)
            else:  # most names show it without a look at the file
                is_read = has_image_extension(path) or is_image_file(path, partial(self._start, os.fsdecode(path)))
            if is_read:
                images.append(path)
                continue
            self.ignored[kind_of_file(path)] += 1
            if path.lower().endswith(_image_paths.LABEL_SUFFIXES):
                self.label_files.append(path)
        self.label_files.sort()
        return sorted(images)


class FolderReader(FileReader):
    """Reader of the files in a folder."""

    def find(self, top: bytes = b"") -> list[bytes]:
        """Return those in `top`, which is empty or ends with a slash."""
        broken: list[bytes] = []
        below = _image_paths.find_files(Path(self.name, os.fsdecode(top)), broken)
        paths = self._sort([top + path for path in below] if top else below)
        links = [os.fsdecode(top + link) for link in broken]
        self._notice_ignored("links that lead to no file, pipes and devices", links)
        return paths

    def has(self, path: str) -> bool:
        return os.path.isfile(self.where(path))

    def read(self, path: str, limit: int | None = None) -> bytes:
        where = self.where(path)
        try:
            with open_regular_file(Path(where)) as stream:
                size = limit or os.fstat(stream.fileno()).st_size
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
            return [entry.name for entry in entries if entry.is_dir() and not _image_paths.is_hidden(entry.name)]

    def where(self, path: str) -> str:
        return os.path.join(self.name, path)


class _ArchiveReader(FileReader):
    """Base class of readers of archives. _members: by path. _links: names of members that are not read."""

    _members: Mapping[str, Any]

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._links: list[str] = []

    def find(self) -> list[bytes]:
        """Members without a name are left out."""
        self._notice_ignored("links in the archive", self._links)
        paths = map(os.fsencode, self._members)
        return self._sort(path for path in paths if path and not _image_paths.is_hidden(path))

    def has(self, path: str) -> bool:
        return path in self._members

    def _path_inside(self, name: str) -> str:
        """Return the name of a member as a path in the archive, whatever `/`, `./` and `../` are in it.

        Raises `DataError` for a name that no file system takes: looking for splits in one of 60 kB takes minutes.
        """
        if len(name) > _MAX_NAME_LENGTH:
            problem = f"a file has a name of {len(name):,} characters, {name[:40]!r}…"
            raise DataError(f"{self.name}: {problem}; rename it, and pack the files again")
        return posixpath.normpath(f"/{name}").lstrip("/")


class ZipReader(_ArchiveReader):
    """Reader of the members of a zip file; `\\` in names, as some programs write it, is a slash."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = threading.Lock()  # the members share one file position
        # opening a pipe would block
        with zip_files.raise_data_errors(self.name), open_regular_file(path):
            self._archive = zipfile.ZipFile(path)
        if any(member.flag_bits & _ENCRYPTED for member in self._archive.infolist()):
            raise DataError(f"{path}: the files are encrypted; unpack it with its password, and pass the folder")
        # of two members of one path the later one counts, as where the archive is unpacked
        members = {member.filename.replace("\\", "/"): member for member in self._archive.infolist()}
        self._members = {self._path_inside(name): member for name, member in members.items() if not name.endswith("/")}

    def read(self, path: str, limit: int | None = None) -> bytes:
        with self._lock, zip_files.raise_data_errors(self.name):
            return zip_files.read_member(self._archive, self._members[path], self.name, MAX_FILE_BYTES, limit)

    def stamp(self, path: str) -> str:
        return str(self._members[path].CRC)


class TarReader(_ArchiveReader):
    """Reader of tar files: plain ones are read in place, images and texts of compressed ones are held in memory.

    Paths of several tar files begin with the split that a tar file is named after, if it is, and file
    names with its number, because two may have the same names. has_several: there are more than one.
    """

    def __init__(self, tars: Sequence[Path], name: Path) -> None:
        super().__init__(name)
        self._tars = tars
        self.has_several = len(tars) > 1
        self._prefixes = [split_folder(tar, name) if self.has_several else "" for tar in tars]
        self._members: dict[str, tuple[int, int, int]] = {}  # tar file, offset (0: compressed), number of bytes
        self._contents: dict[str, bytes] = {}  # of compressed tar files
        self._bytes_left = _MAX_UNPACKED_BYTES
        for number, tar in enumerate(tars):
            if _tar_files.is_tar(tar, is_plain=True):
                for entry in _tar_files.plain_members(tar, self._links):
                    # hidden ones here: with the number of the tar file the name no longer begins with a dot
                    if not _image_paths.is_hidden(os.fsencode(self._path_inside(entry.name))):
                        self._members[self._path(number, entry.name)] = (number, entry.offset_data, entry.size)
            else:
                self._unpack(number, tar)

    def in_order(self, paths: Iterable[bytes]) -> list[bytes]:
        """Return paths in the order of the archive."""
        wanted = set(paths)
        return [path for path in map(os.fsencode, self._members) if path in wanted]

    def read(self, path: str, limit: int | None = None) -> bytes:
        if path in self._contents:
            return self._contents[path][:limit]
        number, offset, num_bytes = self._members[path]
        if not offset:
            raise DataError(f"{self.where(path)}: of compressed tar files only images are read; unpack it")
        num_bytes = min(num_bytes, limit or num_bytes)
        if num_bytes > MAX_FILE_BYTES:
            raise DataError(f"{self.where(path)}: the file has {num_bytes:,} bytes, the limit is {MAX_FILE_BYTES:,}")
        with open_regular_file(self._tars[number]) as file:
            data = os.pread(file.fileno(), num_bytes, offset)
        if len(data) != num_bytes:
            raise DataError(f"{self.where(path)}: the tar file is cut; copy it again")
        return data

    def stamp(self, path: str) -> str:
        if path in self._contents:
            return str(zlib.crc32(self._contents[path]))
        number, offset, num_bytes = self._members[path]
        return f"{offset}+{num_bytes} {self._tars[number].stat().st_mtime_ns}"

    def where(self, path: str) -> str:
        number = self._members[path][0] if path in self._members else 0
        folder, slash, file = path.removeprefix(f"{self._prefixes[number]}/").rpartition("/")
        if self.has_several:
            file = file.partition("-")[2]  # without the number of the tar file
        return f"{self._tars[number]}: {folder}{slash}{file}"

    def _unpack(self, number: int, tar: Path) -> None:
        """Hold images, labels and the texts of a compressed tar file."""

        def is_needed(name: str) -> bool:
            path = os.fsencode(self._path_inside(name)).lower()
            if _image_paths.is_hidden(path):
                return False
            file = name.rpartition("/")[2]  # without a suffix it may be an image
            if has_image_extension(path) or path.endswith((*_image_paths.LABEL_SUFFIXES, b".txt")) or "." not in file:
                return True
            self._members[self._path(number, name)] = (number, 0, 0)  # listed, so that it can be counted
            return False

        for name, data in _tar_files.read_members(tar, is_needed, self._bytes_left, MAX_FILE_BYTES, self._links):
            path = self._path(number, name)
            self._members[path] = (number, 0, len(data))
            self._contents[path] = data
            self._bytes_left -= len(data)

    def _path(self, number: int, name: str) -> str:
        """Return the path of a member; of several tar files, with the number of the tar file before the file name."""
        folder, slash, file = f"{self._prefixes[number]}/{self._path_inside(name)}".lstrip("/").rpartition("/")
        return f"{folder}{slash}{number:06}-{file}" if self.has_several else f"{folder}{slash}{file}"
