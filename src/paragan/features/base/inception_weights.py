"""Extractors with public Inception weights, whose files are known by their sha256."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.command import program_command
from paragan.core.errors import ConfigError, DataError
from paragan.core.files import read_bytes, write_bytes
from paragan.core.option_types import FilePath
from paragan.features._inception_network import SIZE, TENSORFLOW, TORCHVISION, InceptionNetwork, InceptionVariant
from paragan.features.base.extractor import OTHER_CLASSES, ExtractorContext, FeatureExtractor
from paragan.storage.download import RemoteFile, cache_dir


@dataclass(frozen=True)
class PublishedWeights:
    """Public files of the weights of a network; the first is the one to download."""

    variant: InceptionVariant
    files: tuple[RemoteFile, ...]


def _file(start: str, num_bytes: int, sha256: str) -> RemoteFile:
    """Return a file that is named by the first digits of its sha256, as torch does."""
    return RemoteFile(f"https://{start}-{sha256[:8]}.pth", num_bytes, sha256)


# pt_inception-2015-12-05-6726825d.pth of pytorch-fid is the same file
_FIDELITY = "github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05"
_TORCHVISION = "download.pytorch.org/models/inception_v3_google"
_PUBLIC_2015 = _file(_FIDELITY, 95_628_359, "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2")
_NEWER = _file(_TORCHVISION, 108_949_747, "0cc3c7bd75056d25e46cba549dc184522069b81e9787eff6df84f397bd52a5ef")
_OLDER = _file(_TORCHVISION, 108_857_766, "1a9a5a14f40645a370184bd54f4e8e631351e71399112b43ad0294a79da290c8")
PUBLISHED = {  # by extractor
    "inception": PublishedWeights(TENSORFLOW, (_PUBLIC_2015,)),
    "inception_torchvision": PublishedWeights(TORCHVISION, (_NEWER, _OLDER)),
}


def inception_extractor(
    name: str, weights: FilePath | None, context: ExtractorContext, published_names: Mapping[str, str]
) -> FeatureExtractor:
    """Return the extractor `name` of `PUBLISHED`. Errors: those of `load_published`."""
    network, sha256 = load_published(name, Path(weights) if weights else None)
    return FeatureExtractor(
        name=context.name,
        network=network,
        shape=(3, SIZE, SIZE),
        num_classes=network.variant.num_classes,
        sha256=sha256,
        task=OTHER_CLASSES,
        takes_any_size=True,
        is_slow=True,
        published_names=published_names,
        **(context.call_settings(None, 50) | {"resize": network.variant.resize}),  # the network's, for the record
    )


def store_weights(file: Path) -> tuple[Path, str]:
    """Copy a public file to the cache; return its new path, and the extractor that reads it there.

    Raises `DataError` for any other file.
    """
    content, remote, extractor = _read_published(file)
    read_network(content, PUBLISHED[extractor].variant)
    path = stored_path(remote)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
    return path, extractor


def stored_path(remote: RemoteFile) -> Path:
    """Return where the cache has a public file, or would have it."""
    return cache_dir() / "inception" / remote.name


def load_published(extractor: str, file: Path | None = None) -> tuple[InceptionNetwork, str]:
    """Return the network of an extractor, and the sha256 of its weights.

    file: None stands for the copy in the cache. Raises `ConfigError` without a copy in the cache,
    `DataError` for another file.
    """
    published = PUBLISHED[extractor]
    if file is None:
        stored = [path for path in map(stored_path, published.files) if path.is_file()]
        if not stored:
            remote = published.files[0]
            raise ConfigError(
                f"the public weights of evaluation.features={extractor} are missing; download {remote.url}, then run "
                f"`{program_command()} metrics import-weights {remote.name}`"
            )
        file = stored[0]
    content, remote, owner = _read_published(file)
    if owner != extractor:
        raise DataError(f"{file}: these are the weights of evaluation.features={owner}, not {extractor}; use {owner}")
    return read_network(content, published.variant), remote.sha256


def read_network(content: bytes, variant: InceptionVariant) -> InceptionNetwork:
    """Return the network with the weights of a file that torch saved.

    Only a file of known sha256 may be read here: torch's reader of tensors unpickles what it is
    given, though it creates nothing but tensors. Raises `DataError` for other tensors.
    """
    weights: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    with torch.random.fork_rng(devices=[]):
        network = InceptionNetwork(variant)
    missing, unknown = network.load_state_dict(weights, strict=False)
    # whether the file counts batches depends on the version of torch that saved it
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    unknown = [name for name in unknown if not name.startswith(variant.unused)]
    if missing or unknown:
        name = (*missing, *unknown)[0]
        raise DataError(
            f"these are not Inception weights: the tensor {name!r} is missing or unexpected; download them again"
        )
    return network.eval()


def _read_published(file: Path) -> tuple[bytes, RemoteFile, str]:
    """Return the content of a public file, with the extractor that it is for; refuse any other."""
    known = [(remote, extractor) for extractor, published in PUBLISHED.items() for remote in published.files]
    try:
        content = read_bytes(file, max(remote.num_bytes for remote, _ in known))
    except OSError as error:
        names = ", ".join(remote.name for remote, _ in known)
        raise DataError(f"{file}: {error.strerror}; pass the path of one of {names}") from None
    sha256 = hashlib.sha256(content).hexdigest()
    for remote, extractor in known:
        if remote.sha256 == sha256:
            return content, remote, extractor
    urls = " or ".join(published.files[0].url for published in PUBLISHED.values())
    raise DataError(f"{file}: its sha256 {sha256} is not that of a public file of Inception weights; download {urls}")
