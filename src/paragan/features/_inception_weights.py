"""Reader of the public Inception weights of pytorch-fid and torch-fidelity, known by their sha256."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.command import program_command
from paragan.core.errors import ConfigError, DataError
from paragan.core.files import read_bytes, write_bytes
from paragan.features._inception_network import InceptionNetwork
from paragan.storage.download import RemoteFile, cache_dir

PUBLISHED = RemoteFile(
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth",
    95_628_359,
    "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
)


def store_weights(file: Path, published: RemoteFile = PUBLISHED) -> Path:
    """Copy the public file to the cache, where `inception` finds it, and return its new path.

    Raises `DataError` for any other file.
    """
    content = _read_published(file, published)
    read_network(content)
    path = stored_path(published)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
    return path


def stored_path(published: RemoteFile = PUBLISHED) -> Path:
    """Return where the cache has the public file, or would have it."""
    return cache_dir() / "inception" / published.name


def load_published(file: Path | None = None, published: RemoteFile = PUBLISHED) -> InceptionNetwork:
    """Return the network with the public weights. file: None stands for the copy in the cache.

    Raises `ConfigError` without a copy in the cache, `DataError` for another file.
    """
    if file is None and not stored_path(published).is_file():
        raise ConfigError(
            f"the public Inception weights are missing; download {published.url}, then run `{program_command()} "
            f"metrics import-weights {published.name}`"
        )
    return read_network(_read_published(file or stored_path(published), published))


def read_network(content: bytes) -> InceptionNetwork:
    """Return the network with the weights of a file that torch saved.

    Only a file of known sha256 may be read here: torch's reader of tensors unpickles what it is
    given, though it creates nothing but tensors. Raises `DataError` for other tensors.
    """
    weights: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    with torch.random.fork_rng(devices=[]):
        network = InceptionNetwork()
    # whether the file counts batches depends on the version of torch that saved it
    missing, unknown = network.load_state_dict(weights, strict=False)
    differences = [name for name in (*missing, *unknown) if not name.endswith("num_batches_tracked")]
    if differences:
        raise DataError(f"the Inception weights lack, or should not have, the tensor {differences[0]!r}")
    return network.eval()


def _read_published(file: Path, published: RemoteFile) -> bytes:
    """Read a file, and refuse any other than the public one."""
    try:
        content = read_bytes(file, published.num_bytes)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; pass the path of {published.name}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != published.sha256:
        raise DataError(
            f"{file}: its sha256 is {found}, not {published.sha256} of the public Inception weights; download "
            f"{published.url}"
        )
    return content
