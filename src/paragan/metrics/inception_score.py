"""Inception score of generated images: sure classes, and many of them; higher is better.

Source: T. Salimans et al., "Improved techniques for training GANs", NeurIPS 2016, section 4: the exponential of the
mean divergence between the classes of an image and those of all images, as the mean over ten parts of the images. It
looks at no real image. Values compare with published ones only for the Inception network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, Needs, SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric

PARTS = 10


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Mean of ten scores in [1, K]; image `row` belongs to part `row` modulo 10."""

    name = "inception_score"
    direction = Direction.HIGHER
    note = (
        "From 1 to the number of classes of the extractor: high if each image is clearly of one class and all "
        "classes occur. It does not compare with real images."
    )
    needs = frozenset({Needs.LOGITS})
    names_extractor = True
    min_images = PARTS
    settings: ClassVar[Mapping[str, Any]] = {"parts": PARTS}
    added = ("count_P", "entropy_P", "share_PK")
    count_P: Tensor  # images in each part
    entropy_P: Tensor  # sum of p log p
    share_PK: Tensor  # sum of p

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: object = None) -> Metric:
        """Return an empty metric; of the real images, only the number of classes is used."""
        assert real.logits_BK is not None
        zeros_P = torch.zeros(PARTS, dtype=torch.float64)
        return cls(zeros_P, zeros_P, torch.zeros(PARTS, real.logits_BK.shape[1], dtype=torch.float64))

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        assert samples.logits_BK is not None
        log_BK = in_float64(samples.logits_BK).log_softmax(1)
        part_B = samples.row_B % PARTS
        ones_B = torch.ones(len(part_B), dtype=torch.float64)
        return replace(
            self,
            count_P=self.count_P.index_add(0, part_B, ones_B),
            entropy_P=self.entropy_P.index_add(0, part_B, (log_BK.exp() * log_BK).sum(1)),
            share_PK=self.share_PK.index_add(0, part_B, log_BK.exp()),
        )

    def compute(self) -> float:
        """Return the mean score of the parts. Raises `ConfigError` if one has no image."""
        if not bool((self.count_P > 0).all()):
            raise ConfigError(
                f"the Inception score needs at least {PARTS} images, not {int(self.count_P.sum())}; raise "
                "evaluation.num_images"
            )
        share_PK = self.share_PK / self.count_P[:, None]
        # sum of p log q over the images of a part, divided by their number, is q log q
        divergence_P = self.entropy_P / self.count_P - torch.special.xlogy(share_PK, share_PK).sum(1)
        return float(divergence_P.exp().mean())
