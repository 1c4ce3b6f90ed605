"""Fréchet distance within each class, averaged over the classes (intra-class FID); lower is better.

Source: T. Miyato, M. Koyama, "cGANs with projection discriminator", ICLR 2018, section 4. Every
class has few images, so values are far above those of `fd`; they compare only for equal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, Needs, SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Mean of the squared distances of the classes with at least two real images.

    It holds the features of all images.
    """

    name = "intra_class_fd"
    direction = Direction.LOWER
    note = (
        "Fréchet distance between generated and real images of the same class, averaged over the classes. It also "
        "rises if images of a class are good but show another one."
    )
    needs = frozenset({Needs.FEATURES, Needs.LABELS})
    names_extractor = True  # `intra_class_fd[judge]` and that of other features are two metrics
    min_images = 2
    joined = ("generated_NF", "label_N")  # the fields to which `including` and `merge` append rows
    real_NF: Tensor
    real_label_N: Tensor
    generated_NF: Tensor
    label_N: Tensor

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: object = None) -> Metric:
        """Return an empty metric. Raises `ConfigError` if no class has two real images."""
        label_N = _labels(real)
        if not _frequent_classes(label_N):
            raise ConfigError("intra_class_fd needs a class of at least 2 real images; raise evaluation.num_images")
        real_NF = in_float64(real.features_BF)
        return cls(real_NF, label_N, real_NF[:0], label_N[:0])

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        return self.including(generated_NF=in_float64(samples.features_BF), label_N=_labels(samples))

    def compute(self) -> float:
        """Return the mean. Raises `ConfigError` if a class has fewer than two generated images."""
        classes = _frequent_classes(self.real_label_N)
        missing = sorted(set(classes) - set(_frequent_classes(self.label_N)))
        if missing:
            raise ConfigError(
                f"intra_class_fd needs at least 2 generated images of each class, but class {missing[0]} has "
                "fewer; raise evaluation.num_images"
            )
        return sum(map(self._of_class, classes)) / len(classes)

    def _of_class(self, label: int) -> float:
        real_NF = self.real_NF[self.real_label_N == label]
        return distance_of_few(real_NF, self.generated_NF[self.label_N == label])


def distance_of_few(a_NF: Tensor, b_MF: Tensor) -> float:
    """Return the squared Fréchet distance of two sets of rows, without covariance matrices.

    With centred rows A and B, divided by the root of their number less one, the trace of the root of
    A'A B'B is the sum of the singular values of A B'. That matrix is (N, M): small for few rows.
    """
    mean_a_F = a_NF.mean(0)
    mean_b_F = b_MF.mean(0)
    a_NF = (a_NF - mean_a_F) / (len(a_NF) - 1) ** 0.5
    b_MF = (b_MF - mean_b_F) / (len(b_MF) - 1) ** 0.5
    overlap = torch.linalg.svdvals(a_NF @ b_MF.T).sum()
    spread = a_NF.square().sum() + b_MF.square().sum() - 2 * overlap
    return max(float((mean_a_F - mean_b_F).square().sum() + spread), 0.0)  # in this order NaN stays NaN


def _labels(samples: SampleFeatures) -> Tensor:
    if samples.requested_labels_B is None:
        raise ConfigError("intra_class_fd needs labels of images; use a labelled data set")
    return samples.requested_labels_B  # of real images: their labels


def _frequent_classes(label_N: Tensor) -> list[int]:
    """Return the classes with at least two images, which have a covariance."""
    return (label_N.bincount() >= 2).nonzero().flatten().tolist()
