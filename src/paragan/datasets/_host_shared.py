"""Images shared by all processes of a host: one file of raw bytes, mapped into each process."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.source import Source
from paragan.datasets._in_memory import InMemorySource
from paragan.storage.download import cache_dir

_MIN_BYTES = 1 << 20  # smaller data sets are not worth a file


def share_on_host(source: Source) -> Source:
    """Move the images of an in-memory source into a memory-mapped cache file; return that source.

    The first process writes the file. Every process compares it with the images that it has read,
    then frees those. If the cache is not writable, each process holds a copy.
    """
    if isinstance(source, InMemorySource) and source.fingerprint and source.images_NCHW.nbytes >= _MIN_BYTES:
        with suppress(OSError, RuntimeError):
            source.images_NCHW = _map_file(source.images_NCHW, cache_dir() / "images" / f"{source.fingerprint}.u8")
    return source


def _map_file(images_NCHW: Tensor, path: Path) -> Tensor:
    mapped = _read(path, images_NCHW)
    if mapped is None:
        _write(images_NCHW, path)
        mapped = _read(path, images_NCHW)
    return images_NCHW if mapped is None else mapped


def _read(path: Path, images_NCHW: Tensor) -> Tensor | None:
    """Map the file copy-on-write, or return None if it does not contain these images."""
    count = images_NCHW.numel()
    if not path.is_file() or path.stat().st_size != count:
        return None
    mapped = torch.from_file(str(path), shared=False, size=count, dtype=torch.uint8).view(images_NCHW.shape)
    return mapped if torch.equal(mapped, images_NCHW) else None


def _write(images_NCHW: Tensor, path: Path) -> None:
    """Write the file atomically, or delete it if it has other content; the first process wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(images_NCHW.contiguous().numpy().data)
        if _read(path, images_NCHW) is None:
            path.unlink(missing_ok=True)
        with suppress(FileExistsError):
            os.link(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
