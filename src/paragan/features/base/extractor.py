"""Inputs and outputs of the files of `features/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures
from paragan.core.option_types import PretrainedOptions
from paragan.core.source import Source
from paragan.hardware.precision import full_precision
from paragan.loading.normalise import normalise_images
from paragan.loading.order import Order

CLASSES = "classes"  # the usual task of an extractor: those of the data
OTHER_CLASSES = "other classes"
MAX_FOR_ACCURACY = 10_000
_CPU = torch.device("cpu")
REAL_AT_ONCE = 500  # real images that are fetched at once
_ORDER_SEED = 0  # of the order in which real images are taken

Shape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class FeatureExtractor:
    """A trained network whose features, and perhaps logits, metrics compare.

    network: x_BCHW in [-1, 1] to (features_BF, logits_BK), or to features_BF only if num_classes is None. It is moved
    to the device. shape: (C, H, W) of its inputs. sha256: of its weights; equal if two scores use one extractor.
    accuracy: on held-out images; None: unknown. task: what its classes are. crop: pixels cut off at each edge of an
    image. resize: filter that then brings it to the input size; None: another size is refused. takes_any_size: the
    network does so itself, for one and three channels. is_slow: features of real images are cached. batch_size: images
    per call of the network. published_names: of metrics whose values by this extractor are published under another
    name. settings: more that must be equal for two scores to compare, for the record.
    """

    name: str
    network: nn.Module
    shape: Shape
    num_classes: int | None
    sha256: str
    accuracy: float | None = None
    task: str = CLASSES
    crop: int = 0
    resize: str | None = None
    device: torch.device = _CPU
    dtype: torch.dtype = torch.float32
    batch_size: int = 500
    takes_any_size: bool = False
    is_slow: bool = False
    published_names: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network.to(self.device, self.dtype).eval().requires_grad_(False)

    def accepts(self, shape: Shape) -> bool:
        """Return whether images of this shape are valid inputs."""
        if self.takes_any_size:
            return shape[0] in (1, 3)
        return shape == self.input_shape or (shape[0] == self.shape[0] and self.resize is not None)

    @property
    def input_shape(self) -> Shape:
        """Shape (C, H, W) of images that are cropped, but not resized."""
        channels, height, width = self.shape
        return channels, height + 2 * self.crop, width + 2 * self.crop

    @torch.no_grad()
    def compute(self, x_BCHW: Tensor, labels_B: Tensor | None = None) -> SampleFeatures:
        """Compute features and logits of images in [-1, 1] on any device, as float32 on the CPU.

        labels_B: requested labels, passed on. Raises `ConfigError` if the network returns features of
        another shape, or values that are not finite.
        """
        with full_precision(self.device):
            outputs = [self._call(chunk) for chunk in x_BCHW.detach().split(self.batch_size)]
        features, logits = zip(*outputs, strict=True)
        features_BF = torch.cat(features).float().cpu()
        self._check_features(features_BF, len(x_BCHW))
        return SampleFeatures(
            features_BF=features_BF,
            logits_BK=None if self.num_classes is None else torch.cat(logits).float().cpu(),
            requested_labels_B=None if labels_B is None else labels_B.cpu(),
        )

    def compute_rows(self, source: Source, count: int) -> SampleFeatures:
        """Compute the features of `count` images of a data set, always the same, with labels."""
        batches = real_batches(source, count)
        return SampleFeatures.concatenate([self.compute(batch["image"], batch.get("label")) for batch in batches])

    def with_accuracy(self, held_out: Source) -> FeatureExtractor:
        """Return a copy with the accuracy on up to 10,000 of these images, if they have labels. Needs `num_classes`."""
        if not held_out.class_names:
            return self
        judged = self.compute_rows(held_out, min(len(held_out), MAX_FOR_ACCURACY))
        return replace(self, accuracy=accuracy(judged))

    def _check_features(self, features_BF: Tensor, count: int) -> None:
        if features_BF.dim() != 2 or len(features_BF) != count:
            raise ConfigError(
                f"evaluation.features: {self.name} returns features of shape {tuple(features_BF.shape)} for {count} "
                f"images, not ({count}, F); return one row of features for each image"
            )
        if not features_BF.isfinite().all():
            raise ConfigError(
                f"evaluation.features: {self.name} returns features that are not finite; use "
                "evaluation.dtype=float32, or another extractor"
            )

    def _call(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor | None]:
        x_BCHW = F.pad(x_BCHW.to(self.device, torch.float32), (-self.crop,) * 4)
        if not self.takes_any_size and x_BCHW.shape[2:] != self.shape[1:]:
            assert self.resize is not None
            x_BCHW = F.interpolate(x_BCHW, self.shape[1:], mode=self.resize, antialias=True).clamp(-1, 1)
        outputs = self.network(x_BCHW.to(self.dtype))
        return outputs if self.num_classes is not None else (outputs, None)


@dataclass(frozen=True, kw_only=True)
class ExtractorContext:
    """Inputs of an extractor: data, device, and the place where a trained one is saved.

    name: under which the extractor is recorded. folder: of the trained extractor; None: it is not saved. is_cached:
    whether later runs on the same data may use it. device, dtype, batch_size: of calls of the network; batch_size None:
    as the extractor suggests. must_save: failing to write the extractor is an error. log: receives progress and
    warnings. world: all ranks. stop: True ends the training; collective.
    """

    name: str
    train: Source
    held_out: Source
    folder: Path | None = None
    is_cached: bool = False
    device: torch.device = _CPU
    dtype: torch.dtype = torch.float32
    batch_size: int | None = None
    must_save: bool = False
    log: Callable[[str], None] = lambda line: None
    world: World = ALONE
    stop: Callable[[], bool] = lambda: False

    def call_settings(self, options: object, batch_size: int = 500) -> dict[str, Any]:
        """Return the fields of a `FeatureExtractor` that options set.

        options: of the extractor. batch_size: where `evaluation.batch_size` is null.
        """
        return {
            "device": self.device,
            "dtype": self.dtype,
            "batch_size": self.batch_size or batch_size,
            "resize": options.resize if isinstance(options, PretrainedOptions) else None,
        }


def accuracy(judged: SampleFeatures) -> float:
    """Return the share of labelled images that are classified correctly."""
    assert judged.logits_BK is not None and judged.requested_labels_B is not None
    return float((judged.logits_BK.argmax(1) == judged.requested_labels_B).double().mean())


def real_batches(source: Source, count: int) -> Iterator[dict[str, Tensor]]:
    """Yield random batches of `count` images, always the same ones."""
    for first in range(0, count, REAL_AT_ONCE):
        yield real_batch(source, first, min(REAL_AT_ONCE, count - first))


def real_batch(source: Source, first: int, count: int) -> dict[str, Tensor]:
    """Return images `first` … of the random order in which scores read a data set.

    Random, because files may be sorted by class. (MNIST is not shuffled: the fd between training
    images of even and uneven row numbers is 6.7, between random halves 0.4.)
    """
    rows = Order(len(source), _ORDER_SEED).at(np.arange(first, first + count))
    return normalise_images(source.fetch(rows), source)
