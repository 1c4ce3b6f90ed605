"""Images that cannot be decoded, left out before training starts, so that the rows of a run are fixed from its start.

Every image is decoded once, as training decodes it. The result is stored in the cache under the names, sizes and times
of change of all files: a resumed run and `sample` find the same images without decoding them again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.files import write_text
from paragan.datasets._download import cache_dir
from paragan.datasets._image_files import FileReader

_MOST_NAMED = 3
_MOST_BYTES = 64 << 20  # of a stored result
_PROGRESS_S = 10.0


def exclude_damaged(
    files: FileReader, paths: list[bytes], draw: Callable[[bytes, str], Any], options: str, name: str
) -> tuple[list[bytes], tuple[str, ...]]:
    """The paths whose images can be decoded, in order, and a warning that counts and names the others.

    draw: decodes an image from its bytes and its name for messages. options: settings that decoding depends on. name:
    of the data set in messages. Raises `DataError` where fewer than two images are left.
    """
    stored = cache_dir() / "damaged" / f"{_key(files, paths, options)}.json"
    found = _read(stored)
    damaged = _decode_all(files, paths, draw) if found is None else found
    intact = [path for path in paths if os.fsdecode(path) not in damaged]
    if len(intact) < 2:
        count = f"{len(damaged):,} of {len(paths):,}" if intact else f"all {len(paths):,}"
        raise DataError(
            f"data.path: {count} images in {name!r} are damaged, fewer than two are left to train on; "
            f"`{program_command()} data check` names them, give other images"
        )
    if found is None:
        with suppress(OSError):  # the next process decodes them again
            stored.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_text(stored, json.dumps(sorted(damaged)))
    return intact, (_warning(sorted(damaged), len(paths)),) if damaged else ()


def with_skip_hint(draw: Callable[[bytes, str], Any]) -> Callable[[bytes, str], Any]:
    """The same decoding; the error of a damaged image also names the setting that leaves such images out."""

    def decode(data: bytes, where: str) -> Any:
        try:
            return draw(data, where)
        except DataError as error:
            raise DataError(f"{error}; data.damaged=skip leaves them out") from None

    return decode


def _decode_all(files: FileReader, paths: list[bytes], draw: Callable[[bytes, str], Any]) -> set[str]:
    damaged, last = set(), time.monotonic()
    for number, path in enumerate(map(os.fsdecode, paths)):
        try:
            draw(files.read(path), files.where(path))
        except DataError:
            damaged.add(path)
        if time.monotonic() - last >= _PROGRESS_S:
            last = time.monotonic()
            print(f"data.damaged=skip: {number + 1:,} of {len(paths):,} images decoded", file=sys.stderr, flush=True)
    return damaged


def _warning(damaged: list[str], total: int) -> str:
    named = ", ".join(map(repr, damaged[:_MOST_NAMED])) + (", …" if len(damaged) > _MOST_NAMED else "")
    are = "image is" if len(damaged) == 1 else "images are"
    return f"{len(damaged):,} of {total:,} {are} damaged and left out (data.damaged=skip): {named}"


def _key(files: FileReader, paths: list[bytes], options: str) -> str:
    """Equal for equal files and settings; no file is opened."""
    digest = hashlib.blake2b(options.encode(), digest_size=16)
    for path in paths:
        where = os.fsdecode(path)
        digest.update(os.fsencode(f"\0{files.where(where)}\0{files.stamp(where)}"))
    return digest.hexdigest()


def _read(stored: Path) -> set[str] | None:
    """The stored result; None where there is none that can be used."""
    try:
        if stored.stat().st_size > _MOST_BYTES:
            return None
        found = json.loads(stored.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return set(found) if isinstance(found, list) and all(isinstance(path, str) for path in found) else None
