"""Files that are read only where they are plain ones, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def plain_file(path: Path) -> Iterator[BinaryIO]:
    """Open to be read. An `OSError` for a pipe or a device, which might never end, and never a wait for one."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no plain file", str(path))
        yield file


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path`, to be written: it becomes `path` unless the block fails, so nobody sees half a file."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
