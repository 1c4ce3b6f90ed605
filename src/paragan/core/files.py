"""Safe access to files of folders that may hold links, pipes and devices under any name.

Output is a new file under a random name, opened with O_EXCL and O_NOFOLLOW and renamed into place:
readers never meet half a file, and no link is followed. Input is a plain file up to a size. Only
this module opens files for writing (`tests/architecture/test_files.py`).
"""

import errno
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from paragan.core.errors import CheckpointError

_Json = TypeVar("_Json")
_SHA256 = re.compile("[0-9a-f]{64}")
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_MAX_LINE_BYTES = 1 << 24  # of JSON; a generation of 4096 cells has 2 MB
_NAME_BYTES = 100  # of the final name in a temporary one; names have at most 255


def is_sha256(text: str) -> bool:
    """Return whether this is a sha256 in lower-case hexadecimal digits, which is safe as the name of a file."""
    return _SHA256.fullmatch(text) is not None


@contextmanager
def atomic_write(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` unless the block fails. mode: before the umask."""
    _remove_stale(path)
    file, temporary = _created(path, mode)
    try:
        with _naming(path, temporary), file:
            yield file
            file.flush()
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace `path` atomically and durably, also if the machine stops in between."""
    with atomic_write(path, mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Replace `path` by text in UTF-8, as `write_bytes`."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: object) -> None:
    """Replace `path` by indented JSON, as `write_bytes`."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def create_file(path: Path) -> BinaryIO:
    """Return a new, empty file in place of `path`, for writing while other processes read."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, _NEW, 0o666), "wb")


def open_to_append(path: Path) -> BinaryIO:
    """Open a plain file at its end, unbuffered, or create it; `CheckpointError` for a link."""
    return os.fdopen(_open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)


def is_same_file(file: BinaryIO, path: Path) -> bool:
    """Return whether an open file still has this name: it may have been deleted or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def append_again(file: BinaryIO, path: Path) -> BinaryIO:
    """Return a new file `path`, to append, with the content of one that was deleted, if the system has it (Linux)."""
    with atomic_write(path) as new, suppress(OSError), open(f"/proc/self/fd/{file.fileno()}", "rb") as deleted:
        shutil.copyfileobj(deleted, new)
    return open_to_append(path)


def open_lock_file(path: Path) -> BinaryIO:
    """Open a plain file to read, write and lock, or create it; `CheckpointError` for a link."""
    return os.fdopen(_open_plain(path, os.O_RDWR | os.O_CREAT), "r+b", buffering=0)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link the plain file `source` to `target`, a new name; copy it where links fail."""
    try:
        os.link(source, target)
    except OSError:
        with open_regular_file(source) as original, create_file(target) as copy:
            shutil.copyfileobj(original, copy)


def create_subfolder(folder: Path, name: str) -> Path:
    """Return `folder/name`, created if necessary; `CheckpointError` if it, or a folder on the way to it, is a link."""
    path = folder / name
    for place in (path, *path.parents[: len(Path(name).parts) - 1]):
        check_no_link(place)
    path.mkdir(parents=True, exist_ok=True)
    return path


def remove_tree(path: Path) -> None:
    """Remove a folder as far as possible, or what has its name: a link, which is not followed, a file or a pipe."""
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def check_no_link(path: Path) -> None:
    """Raise `CheckpointError` if `path` is a symbolic link, which redirects what is written."""
    if path.is_symlink():
        raise CheckpointError(
            f"{path} is a symbolic link, and nothing is written through links in a run folder; remove the link"
        )


@contextmanager
def open_regular_file(path: Path) -> Iterator[BufferedReader]:
    """Open a plain file for reading without waiting; `OSError` for a pipe or a device."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        yield file


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Return the content of a plain file; `OSError` for others and above `max_bytes`."""
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(max_bytes, size) + 1)  # not `max_bytes`: so large a buffer is allocated
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"more than {max_bytes:,} bytes", str(path))
    return content


def read_json_file(path: Path, kind: type[_Json], max_bytes: int = _MAX_LINE_BYTES) -> _Json:
    """Return the JSON object or list of a plain file; `OSError` as of `read_bytes`, `ValueError` for other content."""
    try:
        value = json.loads(read_bytes(path, max_bytes))
    except RecursionError:  # a few kB of brackets, which is no `ValueError`
        value = None
    if not isinstance(value, kind):
        raise ValueError(f"{path} is not a JSON {kind.__name__}")
    return value


def read_json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of a file with one per line, without lines that a kill cut short."""
    with open_regular_file(path) as lines:
        while text := lines.readline(_MAX_LINE_BYTES):
            with suppress(ValueError, RecursionError):
                if isinstance(line := json.loads(text), dict):
                    yield line


def _open_plain(path: Path, flags: int) -> int:
    check_no_link(path)
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CheckpointError(f"{path} is not a plain file; remove it, or choose another folder with --out DIR")
    return handle


@contextmanager
def _naming(path: Path, temporary: Path) -> Iterator[None]:
    """Name the file that the user knows in errors of the system that name the temporary one, or none (a full disk)."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, temporary, str(temporary)):
            raise  # of another file, which was read
        raise OSError(error.errno, error.strerror, str(path)) from None


def _created(path: Path, mode: int) -> tuple[BinaryIO, Path]:
    """Return a new file, locked against other processes' `_remove_stale`, and its name."""
    while True:
        temporary = path.with_name(f"{_prefix(path)}{os.urandom(4).hex()}.tmp")
        with _naming(path, temporary):
            handle = os.open(temporary, _NEW, mode)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return os.fdopen(handle, "r+b"), temporary
        os.close(handle)  # removed before it was locked


def _remove_stale(path: Path) -> None:
    """Remove temporary files of `path` that a killed process has left."""
    names: list[str] = []
    with suppress(PermissionError):  # a folder that is writable but not listable
        names = os.listdir(path.parent)
    for name in names:
        if is_temporary(path.with_name(name), path):
            with suppress(OSError):
                _remove_unlocked(path.with_name(name))


def _remove_unlocked(path: Path) -> None:
    if path.is_symlink():
        return path.unlink()
    # Some file systems lock only writable files.
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(handle)


def is_temporary(path: Path, final: Path) -> bool:
    """Return whether `path` has the name of a temporary file of `final`."""
    return path.name.startswith(_prefix(final)) and path.name.endswith(".tmp")


def _prefix(path: Path) -> str:
    return f".{os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])}."
