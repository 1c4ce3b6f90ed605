"""Frechet distance of Gaussians fitted to generated and real features; lower is better.

Source: M. Heusel et al., "GANs trained by a two time-scale update rule converge to a local Nash equilibrium", NeurIPS
2017, equation 6; D. C. Dowson, B. V. Landau, "The Frechet distance between multivariate normal distributions", 1982. It
depends on the extractor and on the number of images (fewer: higher), so values compare only if both agree; only with
the published Inception weights would it be the FID.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric


@dataclass(frozen=True)
class FeatureMoments:
    """Moments of features, float64: count, sum, sum of outer products; `+` merges two sets."""

    count: int
    sum_F: Tensor
    outer_FF: Tensor

    @classmethod
    def of(cls, features_BF: Tensor) -> FeatureMoments:
        """Compute the moments of these features."""
        features_BF = in_float64(features_BF)
        return cls(len(features_BF), features_BF.sum(0), features_BF.T @ features_BF)

    def __add__(self, other: FeatureMoments) -> FeatureMoments:
        return FeatureMoments(self.count + other.count, self.sum_F + other.sum_F, self.outer_FF + other.outer_FF)

    def mean_and_covariance(self) -> tuple[Tensor, Tensor]:
        """Return mean (F,) and unbiased covariance (F, F). Raises `ConfigError` below 2 images."""
        if self.count < 2:
            raise ConfigError(
                f"a Frechet distance needs at least 2 images, not {self.count}; raise evaluation.num_images"
            )
        mean_F = self.sum_F / self.count
        return mean_F, (self.outer_FF - self.count * mean_F.outer(mean_F)) / (self.count - 1)


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Squared distance >= 0, in squared units of the features."""

    name = "fd"
    direction = Direction.LOWER
    note = (
        "Fréchet distance between features of generated and of real images; 0 means equal mean "
        "and covariance. Values are comparable only for the same features and number of images."
    )
    names_extractor = True
    min_images = 2
    added = ("generated",)
    real_mean_F: Tensor
    real_covariance_FF: Tensor
    real_root_FF: Tensor  # square root of the covariance
    generated: FeatureMoments

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: object = None) -> Metric:
        """Return an empty metric with the moments of `real`, the reference."""
        mean_F, covariance_FF = FeatureMoments.of(real.features_BF).mean_and_covariance()
        return cls(mean_F, covariance_FF, root(covariance_FF), FeatureMoments.of(real.features_BF[:0]))

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        return self.including(generated=FeatureMoments.of(samples.features_BF))

    def compute(self) -> float:
        """Return the distance. Raises `ConfigError` below two images."""
        mean_F, covariance_FF = self.generated.mean_and_covariance()
        return frechet_distance(
            mean_F, covariance_FF, self.real_mean_F, self.real_covariance_FF, real_root_FF=self.real_root_FF
        )


def frechet_distance(
    mean_F: Tensor,
    covariance_FF: Tensor,
    real_mean_F: Tensor,
    real_covariance_FF: Tensor,
    real_root_FF: Tensor | None = None,
) -> float:
    """Return the squared distance of two Gaussians. real_root_FF: of the real covariance; None: computed."""
    real_root_FF = root(real_covariance_FF) if real_root_FF is None else real_root_FF
    # root(S1 S2) has the trace of root(root(S1) S2 root(S1)): symmetric, so never complex.
    product_FF = real_root_FF @ covariance_FF @ real_root_FF
    overlap = torch.linalg.eigvalsh(_symmetric(product_FF)).clamp(min=0).sqrt().sum()
    spread = real_covariance_FF.trace() + covariance_FF.trace() - 2 * overlap
    return max(float((real_mean_F - mean_F).square().sum() + spread), 0.0)  # in this order NaN stays NaN


def root(covariance_FF: Tensor) -> Tensor:
    """Return the symmetric square root; eigenvalues that rounding made negative count as 0."""
    values_F, vectors_FF = torch.linalg.eigh(_symmetric(covariance_FF))
    return (vectors_FF * values_F.clamp(min=0).sqrt()) @ vectors_FF.T


def _symmetric(matrix_FF: Tensor) -> Tensor:
    return (matrix_FF + matrix_FF.T) / 2
