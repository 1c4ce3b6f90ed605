"""Files that are read only where they are plain ones."""

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
