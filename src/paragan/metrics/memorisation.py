"""Memorisation: whether generated images are nearer to training images than new real images are.

Source: C. Meehan, K. Chaudhuri, S. Dasgupta, "A non-parametric test to detect data-copying in generative models",
AISTATS 2020, section 4: the Mann-Whitney statistic of the distances to the nearest training image, here as the
probability that it estimates instead of as a z-score, so that it does not grow with the number of images.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.metric import Direction, SampleFeatures, SplitFeatures, in_float64
from paragan.metrics._neighbours import nearest, require_more_than
from paragan.metrics.base.running import RunningMetric


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Probability in [0, 1] that a generated image is nearer to a training image than a held-out one."""

    name = "memorisation"
    is_share = True
    direction = Direction.NEITHER
    note = (
        "Probability that a generated image is nearer to its nearest training image than a held-out image is. About "
        "0.5 is ideal; towards 1 the generator copies training images; far below 0.5 its images are unlike real ones."
    )
    names_extractor = True
    reference = "both"
    max_images = 10_000  # generated and held-out ones; copies are searched among all training images
    joined = ("generated_N",)
    train_NF: Tensor
    held_out_M: Tensor  # distances, ascending
    generated_N: Tensor  # distances

    @classmethod
    def from_reference(cls, real: SplitFeatures, options: object = None) -> Metric:
        """Return an empty metric with the distances of held-out images."""
        train_NF = in_float64(real.train.features_BF)
        require_more_than(k=0, x_NF=train_NF)
        require_more_than(k=0, x_NF=real.held_out.features_BF)
        held_out_M = nearest(in_float64(real.held_out.features_BF), train_NF)
        return cls(train_NF, held_out_M.sort().values, train_NF.new_empty(0))

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        return self.including(generated_N=nearest(in_float64(samples.features_BF), self.train_NF))

    def compute(self) -> float:
        """Return the probability; equal distances count half. Raises `ConfigError` without images."""
        require_more_than(k=0, x_NF=self.generated_N)
        below_N = torch.searchsorted(self.held_out_M, self.generated_N)
        up_to_N = torch.searchsorted(self.held_out_M, self.generated_N, right=True)
        return 1 - float((below_N + up_to_N).double().mean()) / (2 * len(self.held_out_M))
