"""Kernel distance between generated and real features (KID); lower is better.

Source: M. Binkowski et al., "Demystifying MMD GANs", ICLR 2018, section 4: the unbiased estimate of the squared maximum
mean discrepancy with the kernel (x y / F + 1)^3. Published values average it over 100 random subsets of 1000 images;
here all pairs of images count at once, which has the same expectation, less variance, and needs no seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric

_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Unbiased squared distance; around 0, and so at times negative, for equal distributions."""

    name = "kid"
    direction = Direction.LOWER
    note = (
        "Kernel distance between features of generated and of real images; 0 is perfect. Unlike the "
        "Fréchet distance it does not depend on the number of images on average."
    )
    names_extractor = True
    min_images = 2
    max_images = 10_000  # the cost is quadratic in this number
    joined = ("generated_NF",)
    real_NF: Tensor
    real_mean: float  # mean kernel of two different real images
    generated_NF: Tensor

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: object = None) -> Metric:
        """Return an empty metric with the kernel of the real images among one another."""
        real_NF = in_float64(real.features_BF)
        return cls(real_NF, _mean_of_pairs(real_NF), real_NF[:0])

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        return self.including(generated_NF=in_float64(samples.features_BF))

    def compute(self) -> float:
        """Return the distance. Raises `ConfigError` below two images."""
        between = _kernel_sum(self.generated_NF, self.real_NF) / (len(self.real_NF) * max(1, len(self.generated_NF)))
        return _mean_of_pairs(self.generated_NF) + self.real_mean - 2 * between


def _mean_of_pairs(x_NF: Tensor) -> float:
    """Return the mean kernel of pairs of different rows."""
    count = len(x_NF)
    if count < 2:
        raise ConfigError(f"a kernel distance needs at least 2 images, not {count}; raise evaluation.num_images")
    equal = float(_kernel(x_NF.square().sum(1), x_NF.shape[1]).sum())
    return (_kernel_sum(x_NF, x_NF) - equal) / (count * (count - 1))


def _kernel_sum(a_NF: Tensor, b_MF: Tensor) -> float:
    """Return the sum of the kernels of all pairs of rows."""
    return sum(float(_kernel(rows @ b_MF.T, b_MF.shape[1]).sum()) for rows in a_NF.split(_ROWS_AT_ONCE))


def _kernel(products: Tensor, num_features: int) -> Tensor:
    return (products / num_features + 1) ** 3
