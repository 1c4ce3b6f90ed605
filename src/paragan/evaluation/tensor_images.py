"""Images among named tensors: what a feature extractor compares, and what G makes of the inputs of samples."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from paragan.core.source import DerivedSource, Source, StreamedSource, image_specs, untrained_classes
from paragan.core.types import Rows
from paragan.evaluation.fixed_samples import fetch_batch
from paragan.evaluation.fixed_tensors import is_pictured
from paragan.evaluation.generated_features import Generate, to_uint8
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_tensors
from paragan.loading.normalise import normalise
from paragan.loading.order import Indices, Order
from paragan.loading.subset import SubsetSource

_MIN_SIDE = 8  # pixels that the judge needs
_TRIED = 4  # samples whose range is looked at
_MAX_CLASSES = 1000


class SampleImages(DerivedSource):
    """The tensor `sample` of a source as `image`, with `label` if there are names of classes."""

    def __init__(self, source: Source, sample: str, class_names: tuple[str, ...] = ()) -> None:
        super().__init__(source)
        self.sample = sample
        self.class_names = class_names
        channels, height, width = source.tensors[sample].shape
        self.tensors = image_specs((channels, height, width), bool(class_names))
        self.fingerprint = f"{source.fingerprint} {sample}"

    def decode(
        self, encoded: Sequence[bytes], rows: Indices, places: Indices | None = None, seed: int = 0
    ) -> Mapping[str, Tensor]:
        """Return uint8 images, and labels."""
        tensors = self.source.decode(encoded, rows, places, seed)
        image = tensors[self.sample]
        image = normalise(image) if image.dtype == torch.uint16 else image
        image = image if image.dtype == torch.uint8 else to_uint8(image)
        return {"image": image, "label": tensors["label"].flatten().long()} if self.class_names else {"image": image}


def is_scored(source: Source, sample: str) -> bool:
    """Return whether an extractor reads these samples: images (1 or 3, H, W), of whole numbers or in [-1, 1]."""
    limits = image_range(source, sample)
    return _are_images(source, sample) and (limits is None or max(map(abs, limits)) <= 1)


def image_range(source: Source, sample: str) -> tuple[float, float] | None:
    """Return the lowest and highest finite value of the first images of floats; None for other samples."""
    if not _are_images(source, sample) or source.tensors[sample].is_image:
        return None
    x = source.fetch(np.arange(min(_TRIED, len(source))))[sample]
    x = x[x.isfinite()]  # a run names samples that are not finite
    return (float(x.amin()), float(x.amax())) if len(x) else None


def _are_images(source: Source, sample: str) -> bool:
    spec = source.tensors[sample]
    if isinstance(source, StreamedSource) or len(source) < 2 or not (spec.is_image or spec.dtype.is_floating_point):
        return False
    return len(spec.shape) == 3 and is_pictured(spec.shape) and min(spec.shape[1:]) >= _MIN_SIDE


def both_splits(train: Source, held_out: Source, sample: str) -> tuple[Source, Source, Source]:
    """Return training images, held-out images, and the samples from whose inputs G generates.

    Without held-out samples (`held_out is train`), a fifth of the training images is held out.
    """
    held_out, names = of_trained_classes(train, held_out)
    images = SampleImages(train, sample, names)
    if held_out is not train:
        return images, SampleImages(held_out, sample, names), held_out
    rows = Order(len(train), seed=0).at(np.arange(len(train)))
    count = -(-len(train) // 5)
    return SubsetSource(images, np.sort(rows[count:])), SubsetSource(images, np.sort(rows[:count])), train


def of_trained_classes(train: Source, held_out: Source) -> tuple[Source, tuple[str, ...]]:
    """Return the held-out samples of classes that are trained, and the names of the classes.

    All samples where no labels are in memory; all, without names, where no label is trained. What is left out is added
    to `train.notices`.
    """
    trained_N, labels_N = train.row_labels(), held_out.row_labels()
    names = train.class_names
    if not names and trained_N is not None and trained_N.min() == 0 < trained_N.max() < _MAX_CLASSES:
        names = tuple(map(str, range(int(trained_N.max()) + 1)))
    if not names or trained_N is None or labels_N is None:
        return held_out, names
    is_trained_N = np.isin(labels_N, trained_N)
    if is_trained_N.all():
        return held_out, names
    others, counts = np.unique(labels_N[~is_trained_N], return_counts=True)
    notices = untrained_classes([str(label) for label in others], [0] * len(others), counts.tolist())
    if not is_trained_N.any():
        notices = ("held_out: no sample has a label that is trained, and scores leave labels out; correct the labels",)
    train.notices += tuple(line for line in notices if line not in train.notices)  # of an earlier run of the program
    return (SubsetSource(held_out, np.flatnonzero(is_trained_N)), names) if is_trained_N.any() else (held_out, ())


def sample_inputs(generator: CalledNetwork, source: Source, prior: Prior, total: int, mode: Mode) -> Generate:
    """Return a function that generates rows of `total` images from the inputs of random samples."""
    order = Order(len(source), seed=0)

    def generate(first: int, count: int) -> tuple[Tensor, Tensor | None]:
        numbers = order.at(np.arange(first, first + count))
        batch = fetch_batch(source, Rows(step=0, first=first, count=count, total=total), prior, numbers)
        inputs = prior.feed("score", batch).fake_inputs
        images = generate_tensors(generator, inputs, mode, prior.seed, first).images.clamp(-1, 1)
        return images, batch.tensors["label"].flatten().long() if "label" in (prior.generator_arguments or ()) else None

    return generate
