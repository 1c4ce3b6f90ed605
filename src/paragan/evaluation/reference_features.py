"""Features of real images, computed once for all runs by extractors that are slow."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from paragan.core.dist import ALONE, World
from paragan.core.files import read_bytes, write_bytes
from paragan.core.metric import SampleFeatures
from paragan.core.source import Source
from paragan.evaluation.generated_features import compute_features, row_blocks, to_uint8
from paragan.features.base.extractor import REAL_AT_ONCE, FeatureExtractor, real_batch, real_batches

_FORMAT = 2  # raised when a data set of the package changes its labels or splits: fingerprints do not show that
_MAX_BYTES = 2 << 30  # 50,000 images by the Inception network take 0.6 GB


def real_features(
    extractor: FeatureExtractor, source: Source, count: int, log: Callable[[str], None], world: World = ALONE
) -> SampleFeatures:
    """Return the features of `count` images, always the same, with labels; from the cache if it has them. Collective.

    Each rank computes a part. Cached are features of extractors with `is_slow`, in the folder
    `features` of `cache_dir()`, by a hash of all that they depend on. A damaged file is computed anew.
    """

    def rows(first: int, number: int) -> tuple[Tensor, Tensor | None]:
        samples = real_batch(source, first, number)
        return samples["image"], samples.get("label")

    def compute() -> SampleFeatures:
        return compute_features(rows, extractor, row_blocks(count, REAL_AT_ONCE), world, log)

    if not extractor.is_slow or not source.fingerprint:
        return compute()
    from paragan.storage.download import cache_dir

    path = cache_dir() / "features" / f"{_key(extractor, source, count)}.safetensors"
    features = _read(path, count)
    if world.any(features is None) or features is None:  # a rank without it in its own cache needs all to compute
        features = compute()
        with suppress(OSError):  # without space or permission, nothing is cached
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, save(_tensors(features)))
    return features


def real_images(source: Source, count: int) -> Tensor:
    """Return the images whose features `real_features` returns, uint8 (N, C, H, W)."""
    return torch.cat([to_uint8(batch["image"]) for batch in real_batches(source, count)])


def _key(extractor: FeatureExtractor, source: Source, count: int) -> str:
    """Hash everything that the features depend on."""
    settings = (extractor.sha256, extractor.crop, extractor.resize, str(extractor.dtype), dict(extractor.settings))
    data = (source.fingerprint, list(source.shape), len(source), count)
    return hashlib.sha256(json.dumps([_FORMAT, settings, data]).encode()).hexdigest()


def _tensors(features: SampleFeatures) -> dict[str, Tensor]:
    columns = {"features": features.features_BF, "logits": features.logits_BK, "labels": features.requested_labels_B}
    return {name: column.contiguous() for name, column in columns.items() if column is not None}


def _read(path: Path, count: int) -> SampleFeatures | None:
    try:
        tensors = load(read_bytes(path, _MAX_BYTES))
        features = SampleFeatures(
            features_BF=tensors["features"], logits_BK=tensors.get("logits"), requested_labels_B=tensors.get("labels")
        )
    except (OSError, SafetensorError, KeyError):
        return None
    return features if len(features) == count else None
