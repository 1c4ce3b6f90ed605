"""Inception network of the published FID and Inception score, with its public weights.

Source: M. Heusel et al., "GANs trained by a two time-scale update rule converge to a local Nash
equilibrium", NeurIPS 2017; the weights are those of pytorch-fid and torch-fidelity.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paragan.core.errors import ConfigError, DataError
from paragan.core.files import read_bytes
from paragan.core.option_types import FilePath
from paragan.features._inception_network import NUM_CLASSES, SIZE, InceptionNetwork
from paragan.features.base.extractor import OTHER_CLASSES, ExtractorContext, FeatureExtractor
from paragan.storage.download import RemoteFile, cache_dir

# pt_inception-2015-12-05-6726825d.pth of pytorch-fid is the same file; torch names a file by the start of its sha256
PUBLIC_FILE = RemoteFile(
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth",
    95_628_359,
    "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
)
PUBLISHED_NAMES = {
    "fd": "fid",
    "inception_score": "inception_score",
    "intra_class_fd": "intra_class_fid",
    "kid": "kid",
}


@dataclass(frozen=True)
class Options:
    """File of the public weights."""

    weights: FilePath | None = None
    """The file of pytorch-fid or torch-fidelity; null: the one in `inception` of PARAGAN_CACHE or ~/.cache/paragan."""


def prepare(options: Options, context: ExtractorContext) -> FeatureExtractor:
    """Read the network. Raises `ConfigError` without its weights, `DataError` for another file."""
    file = Path(options.weights) if options.weights else cache_dir() / "inception" / PUBLIC_FILE.name
    if not options.weights and not file.is_file():
        raise ConfigError(
            f"the public weights of evaluation.features=inception are missing; download {PUBLIC_FILE.url} "
            f"to {file.parent}, or pass evaluation.features.weights=FILE"
        )
    return FeatureExtractor(
        name=context.name,
        network=read_network(_read_published(file)),
        shape=(3, SIZE, SIZE),
        num_classes=NUM_CLASSES,
        sha256=PUBLIC_FILE.sha256,
        task=OTHER_CLASSES,
        takes_any_size=True,
        is_slow=True,
        published_names=PUBLISHED_NAMES,
        **{**context.call_settings(None, 50), "resize": "bilinear of TensorFlow 1"},
    )


def _read_published(file: Path) -> bytes:
    """Return the content of the public file; refuse any other."""
    try:
        content = read_bytes(file, PUBLIC_FILE.num_bytes)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; pass the path of {PUBLIC_FILE.name}") from None
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != PUBLIC_FILE.sha256:
        raise DataError(f"{file}: its sha256 {sha256} is not that of the public file; download {PUBLIC_FILE.url}")
    return content


def read_network(content: bytes) -> InceptionNetwork:
    """Return the network with the weights of a file that torch saved.

    Only a file of known sha256 may be read here: torch's reader of tensors unpickles what it is
    given, though it creates nothing but tensors. Raises `DataError` for other tensors.
    """
    weights: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    with torch.random.fork_rng(devices=[]):
        network = InceptionNetwork()
    missing, unknown = network.load_state_dict(weights, strict=False)
    # whether the file counts batches depends on the version of torch that saved it
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unknown:
        raise DataError(f"the Inception weights lack, or should not have, the tensor {(*missing, *unknown)[0]!r}")
    return network.eval()
