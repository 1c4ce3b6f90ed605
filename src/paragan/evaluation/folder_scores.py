"""Distances between two folders of images, by the features of one extractor."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from paragan.core import registry
from paragan.core.errors import ConfigError, DataError, describe_error
from paragan.core.metric import Metric, Needs, SampleFeatures
from paragan.core.process_environment import num_cores
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.base.whole_images import decode_whole, whole_image
from paragan.evaluation.chosen_metrics import ChosenMetric, number_of
from paragan.evaluation.statistics_files import FILE_SUFFIX, has_statistics, read_statistics
from paragan.features.base.extractor import FeatureExtractor
from paragan.loading.order import Order
from paragan.metrics import fd
from paragan.storage import npz

METRICS = ("fd", "kid", "precision", "recall", "density", "coverage")
_BLOCK_IMAGES = 64  # decoded at the same time
_IMAGES = "arr_0"  # of a file of images, as `numpy.savez(file, images)` names them
Update = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images of one side: mean (F,) and covariance (F, F) of their features, in float64.

    features: None for a file of statistics, which has fd alone. name: of the folder or file. ignored: number of files
    in it that are not compared, by kind.
    """

    name: str
    mean_F: Tensor
    covariance_FF: Tensor
    features: SampleFeatures | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        """Return lines about what a score of these images does not show."""
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in self.ignored.items())
        lines = [f"{self.name}: left out of the comparison: {kinds}"] if kinds else []
        if self.features is not None and len(self.features) <= len(self.mean_F):
            few = f"{len(self.features):,} images for {len(self.mean_F):,} features"
            lines.append(f"{self.name}: {few}: fd is too high unless there are many more images than features")
        return lines


def read_images(
    path: str, extractor: FeatureExtractor, update: Update = lambda done, total: None, option: str = "score"
) -> ImageSet:
    """Return the features of all images of a folder, archive, shards or array, or the statistics of an .npz file.

    Images of any size are passed at their size, which the extractor brings to its own. Features are in memory, images
    of files are not, but for some at a time. Raises `DataError` for a damaged image, and for one that the extractor
    refuses. option: name of the path in messages.
    """
    is_array = path.endswith(FILE_SUFFIX)
    if is_array and has_statistics(Path(path)):
        mean_F, covariance_FF = read_statistics(Path(path), extractor)
        return ImageSet(name=path, mean_F=mean_F, covariance_FF=covariance_FF)
    images = _ArrayImages(Path(path)) if is_array else open_encoded_images(path, option=option)
    order = Order(len(images), seed=0).at(np.arange(len(images)))  # metrics with a limit read the first ones
    features_NF = torch.empty(0)

    def decode(row: int) -> Tensor:
        if isinstance(images, _ArrayImages):
            return whole_image(images.image(row), extractor.shape[0])
        return decode_whole(images.read([row])[0], images.where(row), extractor.shape[0])

    with ThreadPoolExecutor(min(8, num_cores())) as threads:
        for first in range(0, len(images), _BLOCK_IMAGES):
            rows = [int(row) for row in order[first : first + _BLOCK_IMAGES]]
            decoded = list(threads.map(decode, rows))
            block_BF = torch.cat(_features(extractor, decoded, [images.where(row) for row in rows]))
            if not first:
                # One tensor for all: small ones between images, which are freed, would keep the heap large (2 GB).
                features_NF = torch.empty(len(images), block_BF.shape[1])
            features_NF[first : first + len(rows)] = block_BF
            update(min(first + _BLOCK_IMAGES, len(images)), len(images))
    return _image_set(path, features_NF, images.ignored)


def _image_set(name: str, features_BF: Tensor, ignored: Mapping[str, int]) -> ImageSet:
    mean_F, covariance_FF = fd.FeatureMoments.of(features_BF).mean_and_covariance()
    features = SampleFeatures(features_BF=features_BF)
    return ImageSet(name=name, mean_F=mean_F, covariance_FF=covariance_FF, features=features, ignored=dict(ignored))


class _ArrayImages:
    """Images of an array, as `sample --out FILE.npz` and the programs of the field write them."""

    ignored: Mapping[str, int] = MappingProxyType({})

    def __init__(self, path: Path) -> None:
        if _IMAGES not in (names := npz.array_names(path)):
            raise DataError(
                f"{path}: it has {', '.join(names) or 'no arrays'}, neither mu and sigma nor images as {_IMAGES}; pass "
                "statistics, or images"
            )
        self._path = path
        self._images_NHWC = npz.read_array(path, _IMAGES)
        shape = self._images_NHWC.shape
        if self._images_NHWC.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3, 4) or len(self) < 2:
            raise DataError(
                f"{path}: {_IMAGES} is {self._images_NHWC.dtype} {shape}; pass two or more images (N, H, W, C) as uint8"
            )

    def __len__(self) -> int:
        return len(self._images_NHWC)

    def image(self, row: int) -> Image.Image:
        pixels_HWC = self._images_NHWC[row]
        return Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[2] == 1 else pixels_HWC)

    def where(self, row: int) -> str:
        return f"{self._path}: image {row}"


def _features(extractor: FeatureExtractor, images: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
    """Return features in the order of the images; those of one size after another are computed together."""
    computed = []
    for shape, group in groupby(zip(images, names, strict=True), key=lambda pair: tuple(pair[0].shape)):
        same_size, files = zip(*group, strict=True)
        if len(shape) != 3 or not extractor.accepts((shape[0], shape[1], shape[2])):
            raise DataError(
                f"{files[0]}: {extractor.name} takes images of {'x'.join(map(str, extractor.input_shape))}, not of "
                f"{'x'.join(map(str, shape))}; choose another of --features, or one that "
                "resizes, such as '{name: cifar10, resize: bilinear}'"
            )
        computed.append(extractor.compute(torch.stack(same_size)).features_BF)
    return computed


def compare(generated: ImageSet, real: ImageSet, metrics: Sequence[str] = METRICS) -> dict[str, float | str]:
    """Return the value of each metric by name, or the reason why there is none.

    Every image counts for fd, and 10,000 of each side, drawn at random, for metrics of pairs of images.
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
    if not num_generated or not num_real:
        return f"needs at least {metric.kind.min_images} generated and as many real images"
    try:
        empty = metric.kind.from_reference(real.features.rows(0, num_real))
        return number_of(empty.update(generated.features.rows(0, num_generated)).compute())
    except Exception as error:  # of any kind: a metric may be a user's
        return describe_error(error)


def check_metric(name: str) -> None:
    """Raise `ConfigError` for a metric that needs more than features of two sets of images."""
    choice = f"choose from {', '.join(METRICS)}"
    if "." not in name and name not in registry.names("metrics"):
        raise ConfigError(f"--metrics: no metric {name!r}; {choice}")
    kind: type[Metric] = registry.load_module("metrics", name).Metric
    if kind.needs != frozenset({Needs.FEATURES}) or kind.reference in ("both", "classifier"):
        raise ConfigError(f"--metrics: {name} cannot be computed from the features of two folders; {choice}")
