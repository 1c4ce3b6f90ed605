"""Images that all processes of a host have between them: a file of raw bytes, mapped by each, in memory once."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.protocols import Source
from paragan.datasets._download import cache_dir
from paragan.datasets._in_memory import InMemorySource

_LEAST_BYTES = 1 << 20  # less is not worth a file


def share_on_host(source: Source) -> Source:
    """The same source. Where it holds its images in memory they lie in a file of the cache from now on, which the
    first process writes; every process compares it with what it has read itself, and then lets that go.

    Where the cache cannot be written to, each process keeps its own copy.
    """
    if isinstance(source, InMemorySource) and source.fingerprint and source.images_NCHW.nbytes >= _LEAST_BYTES:
        with suppress(OSError, RuntimeError):
            source.images_NCHW = _map_file(source.images_NCHW, cache_dir() / "images" / f"{source.fingerprint}.u8")
    return source


def _map_file(images_NCHW: Tensor, path: Path) -> Tensor:
    found = _read(path, images_NCHW)
    if found is None:
        _write(images_NCHW, path)
        found = _read(path, images_NCHW)
    return images_NCHW if found is None else found


def _read(path: Path, images_NCHW: Tensor) -> Tensor | None:
    """What is there, if it is these images. Private: who writes to it writes to a copy of its own."""
    count = images_NCHW.numel()
    if not path.is_file() or path.stat().st_size != count:
        return None
    found = torch.from_file(str(path), shared=False, size=count, dtype=torch.uint8).view(images_NCHW.shape)
    return found if torch.equal(found, images_NCHW) else None


def _write(images_NCHW: Tensor, path: Path) -> None:
    """Whole or not at all. Of several processes that do so at once all map the first one's; what is wrong goes."""
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
