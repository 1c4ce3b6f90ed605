"""Exclusion of damaged images before training starts, so that the rows of a run never change.

Every image is decoded once, as in training. The result is cached under a key of the names, sizes
and modification times of all files: a resumed run and `sample` use the same images without decoding
them again.
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
from paragan.core.files import read_bytes, write_text
from paragan.datasets.base.file_readers import FileReader
from paragan.storage.download import cache_dir

_MAX_NAMED = 3
_MAX_CACHE_FILE_BYTES = 64 << 20
_PROGRESS_S = 10.0


def exclude_damaged(
    files: FileReader, paths: list[bytes], decode: Callable[[bytes, str], Any], options: str, name: str
) -> tuple[list[bytes], tuple[str, ...]]:
    """Return the paths of images that can be decoded, and a warning that counts and names the rest.

    decode: decodes an image from its bytes and its name in messages. options: the settings that
    decoding depends on. name: the data set in messages. Raises `DataError` if fewer than two images
    remain.
    """
    cached = cache_dir() / "damaged" / f"{_key(files, paths, options)}.json"
    known = _read(cached)
    damaged = _decode_all(files, paths, decode) if known is None else known
    intact = [path for path in paths if os.fsdecode(path) not in damaged]
    if len(intact) < 2:
        count = f"{len(damaged):,} of {len(paths):,}" if intact else f"all {len(paths):,}"
        required = ", and training needs two others" if intact else ""
        raise DataError(
            f"data.path: {count} images in {name!r} are damaged{required}; "
            f"list the damaged ones with `{program_command()} data check` and replace them"
        )
    if known is None:
        with suppress(OSError):  # without a cache file, the next process decodes again
            cached.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_text(cached, json.dumps(sorted(damaged)))
    return intact, (_warning(sorted(damaged), len(paths)),) if damaged else ()


def with_skip_hint(decode: Callable[[bytes, str], Any]) -> Callable[[bytes, str], Any]:
    """Wrap a decoder so that its errors also name the setting that excludes damaged images."""

    def decode_with_hint(data: bytes, where: str) -> Any:
        try:
            return decode(data, where)
        except DataError as error:
            raise DataError(f"{error}; pass data.damaged=skip to exclude damaged images") from None

    return decode_with_hint


def _decode_all(
    files: FileReader,
    paths: list[bytes],
    decode: Callable[[bytes, str], Any],
) -> set[str]:
    damaged: set[str] = set()
    last = time.monotonic()
    for number, path in enumerate(map(os.fsdecode, paths)):
        try:
            decode(files.read(path), files.where(path))
        except DataError:
            damaged.add(path)
        if time.monotonic() - last >= _PROGRESS_S:
            last = time.monotonic()
            print(f"data.damaged=skip: {number + 1:,} of {len(paths):,} images decoded", file=sys.stderr, flush=True)
    return damaged


def _warning(damaged: list[str], total: int) -> str:
    named = ", ".join(map(repr, damaged[:_MAX_NAMED])) + (", …" if len(damaged) > _MAX_NAMED else "")
    are = "image is" if len(damaged) == 1 else "images are"
    return f"{len(damaged):,} of {total:,} {are} damaged and excluded (data.damaged=skip): {named}"


def _key(files: FileReader, paths: list[bytes], options: str) -> str:
    """Hash the settings and all file names, sizes and modification times; open no file."""
    digest = hashlib.blake2b(options.encode(), digest_size=16)
    for path in paths:
        where = os.fsdecode(path)
        digest.update(os.fsencode(f"\0{files.where(where)}\0{files.stamp(where)}"))
    return digest.hexdigest()


def _read(cached: Path) -> set[str] | None:
    """Return the cached result, or None if it is missing or invalid."""
    try:
        names = json.loads(read_bytes(cached, _MAX_CACHE_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    is_valid = isinstance(names, list) and all(isinstance(path, str) for path in names)
    return set(names) if is_valid else None
