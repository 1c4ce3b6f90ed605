"""Exclusion of damaged images before training starts, so that the rows of a run never change.

Every image is decoded once, as in training. The result is cached under a key of the names, sizes and modification times
of all files: a resumed run and `sample` use the same images without decoding them again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.files import read_json_file, write_text
from paragan.core.printable import join_some
from paragan.datasets._encoded_images import EncodedImages, SelectedImages
from paragan.datasets._image_decoding import PixelSettingError
from paragan.datasets._tiff_bands import Values
from paragan.storage.download import cache_dir

_MAX_CACHE_FILE_BYTES = 64 << 20
_PROGRESS_S = 10.0


def exclude_damaged(
    images: EncodedImages, decode: Callable[[bytes, str], Any], options: str, name: str
) -> EncodedImages:
    """Return the images that can be decoded, with a warning that counts and names the rest.

    decode: decodes an image from its bytes and its name in messages. options: the settings that decoding depends on.
    name: the data set in messages. Raises `DataError` if fewer than two images remain.
    """
    key = images.fingerprint(np.arange(len(images), dtype=np.uint32), f"{name}\0{options}")
    cached = cache_dir() / "damaged" / f"{key}.json"
    damaged = _read(cached)
    if damaged is None:
        damaged = _decode_all(images, decode)
        with suppress(OSError):  # without a cache file, the next process decodes again
            cached.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_text(cached, json.dumps(sorted(damaged)))
    intact = np.array([row for row in range(len(images)) if images.name(row) not in damaged], np.uint32)
    if len(intact) < 2:
        count = f"{len(damaged):,} of {len(images):,}" if len(intact) else f"all {len(images):,}"
        required = ", and training needs two others" if len(intact) else ""
        raise DataError(
            f"data.path: {count} samples in {name!r} are damaged{required}; "
            f"list the damaged ones with `{program_command()} data check` and replace them"
        )
    if not damaged:
        return images
    are = "is" if len(damaged) == 1 else "are"
    named = join_some([repr(name) for name in sorted(damaged)])
    notice = f"{len(damaged):,} of {len(images):,} samples {are} damaged and excluded (data.damaged=skip): {named}"
    return SelectedImages(images, intact, (notice,))


def with_skip_hint(decode: Callable[..., Values]) -> Callable[..., Values]:
    """Wrap a decoder so that its errors also name the setting that excludes damaged images."""

    def decode_with_hint(data: bytes, where: str, *draw: int) -> Values:
        try:
            return decode(data, where, *draw)
        except PixelSettingError:
            raise
        except DataError as error:
            raise DataError(f"{error}; pass data.damaged=skip to exclude damaged images") from None

    return decode_with_hint


def _decode_all(images: EncodedImages, decode: Callable[[bytes, str], Any]) -> set[str]:
    damaged: set[str] = set()
    last = time.monotonic()
    for row in range(len(images)):
        try:
            decode(images.read([row])[0], images.where(row))
        except PixelSettingError:
            raise
        except DataError:
            damaged.add(images.name(row))
        if time.monotonic() - last >= _PROGRESS_S:
            last = time.monotonic()
            print(f"data.damaged=skip: {row + 1:,} of {len(images):,} samples decoded", file=sys.stderr, flush=True)
    return damaged


def _read(cached: Path) -> set[str] | None:
    """Return the cached result, or None if it is missing or invalid."""
    with suppress(OSError, ValueError):
        names = read_json_file(cached, list, _MAX_CACHE_FILE_BYTES)
        return set(names) if all(isinstance(path, str) for path in names) else None
    return None
