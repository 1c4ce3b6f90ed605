"""Distances between two folders of images, by the features of one extractor."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paragan.core import registry
from paragan.core.errors import ConfigError, DataError, ParaganError
from paragan.core.metric import Direction, Metric, Needs, SampleFeatures
from paragan.core.process_environment import num_cores
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.base.whole_images import decode_whole
from paragan.evaluation.chosen_metrics import ChosenMetric
from paragan.features.base.extractor import FeatureExtractor
from paragan.loading.order import Order
from paragan.metrics import fd
from paragan.storage import npz

METRICS = ("fd", "kid", "precision", "recall", "density", "coverage")
_AT_ONCE = 64  # images that are decoded at once
_STATISTICS = ("mu", "sigma")  # arrays of a file of statistics, as FID's programs name them
Update = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images of one side: mean (F,) and covariance (F, F) of their features, in float64.

    features: None for a file of statistics, which has fd alone. name: of the folder or file.
    """

    name: str
    mean_F: Tensor
    covariance_FF: Tensor
    features: SampleFeatures | None = None


def read_images(path: str, extractor: FeatureExtractor, update: Update = lambda done, total: None) -> ImageSet:
    """Return the features of all images of a folder, archive or shards, or the statistics of an .npz file.

    Images of any size are passed at their size, which the extractor brings to its own. Features are in memory, images
    are not, but for some at a time. Raises `DataError` for a damaged image, and for one that the extractor refuses.
    """
    if path.endswith(".npz") and set(_STATISTICS) <= set(npz.array_names(Path(path))):
        return _read_statistics(path)
    images = open_encoded_images(path, option="score")
    order = Order(len(images), 0).at(np.arange(len(images)))  # metrics with a limit read the first ones
    computed: list[Tensor] = []

    def decode(row: int) -> Tensor:
        return decode_whole(images.read([row])[0], images.where(row), extractor.shape[0])

    with ThreadPoolExecutor(min(8, num_cores())) as threads:
        for first in range(0, len(images), _AT_ONCE):
            rows = [int(row) for row in order[first : first + _AT_ONCE]]
            decoded = list(threads.map(decode, rows))
            computed += _features(extractor, decoded, [images.where(row) for row in rows])
            update(min(first + _AT_ONCE, len(images)), len(images))
    features_BF = torch.cat(computed)
    mean_F, covariance_FF = fd.FeatureMoments.of(features_BF).mean_and_covariance()
    features = SampleFeatures(features_BF=features_BF)
    return ImageSet(name=path, mean_F=mean_F, covariance_FF=covariance_FF, features=features)


def _features(extractor: FeatureExtractor, images: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
    """Return features in the order of the images; those of one size after another are computed together."""
    computed = []
    for shape, group in groupby(zip(images, names, strict=True), key=lambda pair: tuple(pair[0].shape)):
        same_size, files = zip(*group, strict=True)
        if len(shape) != 3 or not extractor.accepts((shape[0], shape[1], shape[2])):
            raise DataError(
                f"{files[0]}: {extractor.name} takes images of {'x'.join(map(str, extractor.input_shape))}, not of "
                f"{'x'.join(map(str, shape))}; choose another of --features"
            )
        computed.append(extractor.compute(torch.stack(same_size)).features_BF)
    return computed


def _read_statistics(path: str) -> ImageSet:
    mean, covariance = (torch.from_numpy(npz.read_array(Path(path), name)).double() for name in _STATISTICS)
    if mean.dim() != 1 or covariance.shape != (len(mean), len(mean)) or not covariance.isfinite().all():
        raise DataError(
            f"{path}: mu {tuple(mean.shape)} and sigma {tuple(covariance.shape)} are no mean and covariance"
        )
    return ImageSet(name=path, mean_F=mean, covariance_FF=covariance)


def save_statistics(images: ImageSet, path: Path) -> None:
    """Write mean and covariance as `mu` and `sigma` of an .npz file, which other programs for FID read."""
    npz.write_arrays(path, {"mu": images.mean_F.numpy(), "sigma": images.covariance_FF.numpy()})


def compare(generated: ImageSet, real: ImageSet, metrics: Sequence[str] = METRICS) -> dict[str, float | str]:
    """Return the value of each metric by name, or the reason why there is none.

    Every image counts, but for metrics with a limit (kid: 10,000 of each side).
    """
    if len(generated.mean_F) != len(real.mean_F):
        raise ConfigError(
            f"score: {generated.name} has {len(generated.mean_F)} features, {real.name} {len(real.mean_F)}; use "
            "statistics of the same extractor"
        )
    return {name: _value(name, generated, real) for name in metrics}


def _value(name: str, generated: ImageSet, real: ImageSet) -> float | str:
    if name == "fd":
        return fd.frechet_distance(generated.mean_F, generated.covariance_FF, real.mean_F, real.covariance_FF)
    if generated.features is None or real.features is None:
        return "needs images, not statistics"
    metric = ChosenMetric(registry.load_module("metrics", name).Metric)
    num_generated, num_real = metric.count(len(generated.features)), metric.count(len(real.features))
    try:
        empty = metric.kind.from_reference(real.features.rows(0, num_real))
        return empty.update(generated.features.rows(0, num_generated)).compute()
    except ParaganError as error:
        return str(error)


def check_metric(name: str) -> None:
    """Raise `ConfigError` for a metric that needs more than features of two sets of images."""
    kind: type[Metric] = registry.load_module("metrics", name).Metric
    if kind.needs != frozenset({Needs.FEATURES}) or kind.reference in ("both", "classifier"):
        raise ConfigError(f"--metrics: {name} needs more than two sets of images; choose of {', '.join(METRICS)}")


def direction_mark(name: str) -> str:
    """Return what a better value of a metric is."""
    kind: type[Metric] = registry.load_module("metrics", name).Metric
    return {Direction.LOWER: "lower is better", Direction.HIGHER: "higher is better"}.get(kind.direction, "")
