"""Classification accuracy score (CAS): a classifier trained on generated images, tested on real ones.

Source: S. Ravuri, O. Vinyals, "Classification accuracy score for conditional generative models", NeurIPS
2019. Published values train a ResNet-50 on as many images as ImageNet has; here the classifier is the
judge's, so values compare only with the one of real images. It falls if classes are mixed up, have bad
images, or few different ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import ClassifierTest, Direction, Needs, SampleFeatures
from paragan.metrics.base.running import RunningMetric


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Accuracy in [0, 1]. It holds all images; `compute` trains a classifier, seconds to a minute."""

    name = "cas"
    direction = Direction.HIGHER
    note = (
        "Accuracy on held-out real images of a classifier that is trained on generated images and their classes. The "
        "value of real images is the best to expect."
    )
    needs = frozenset({Needs.IMAGES, Needs.LABELS})
    reference = "classifier"
    settings: ClassVar[Mapping[str, Any]] = {"split": "held_out", "classifier": "that of the judge"}
    has_interval = False  # each half of the images would train a classifier
    joined = ("image_NCHW", "label_N", "row_N")
    test: ClassifierTest
    image_NCHW: Tensor
    label_N: Tensor
    row_N: Tensor

    @classmethod
    def from_reference(cls, real: ClassifierTest, options: object = None) -> Metric:
        """Return an empty metric. real: trains and tests a classifier."""
        no_rows = torch.zeros(0, dtype=torch.int64)
        return cls(real, torch.zeros(0, *real.shape, dtype=torch.uint8), no_rows, no_rows)

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        if samples.image_BCHW is None or samples.requested_labels_B is None:
            raise ConfigError("cas needs images and the classes they were generated for; use data with classes")
        images = samples.image_BCHW
        return self.including(image_NCHW=images, label_N=samples.requested_labels_B, row_N=samples.row_B)

    def compute(self) -> float:
        """Return the accuracy. Raises `ConfigError` without images."""
        if not len(self.row_N):
            raise ConfigError("cas needs at least 1 generated image; raise evaluation.num_images")
        order_N = self.row_N.argsort(stable=True)  # training depends on the order, not on shards
        return self.test.accuracy_after(self.image_NCHW[order_N], self.label_N[order_N])
