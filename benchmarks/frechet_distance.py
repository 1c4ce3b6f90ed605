"""Cost of a Fréchet distance.

`metrics/fd.py`, whose root of the real covariance is computed once, against two general methods for the product of
both covariances: the root by scipy, as pytorch-fid has it, and the eigenvalues, as torchmetrics has them. Aim at 2048
features: <= 0.1 x CPU time.

python -m benchmarks.frechet_distance [features] [pairs]
"""

from __future__ import annotations

import sys
from functools import partial

import scipy.linalg
import torch
from torch import Tensor

from benchmarks.paired_timing import compare, keep
from paragan.metrics.fd import FeatureMoments, Metric, root


def moments(features: int, seed: int) -> FeatureMoments:
    """Moments of correlated features, 2.5 images for each feature."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(features, features, generator=torch.Generator().manual_seed(9)) / features**0.5
    return FeatureMoments.of(torch.randn(5 * features // 2, features, generator=generator) @ mix)


def by_eigenvalues(real: tuple[Tensor, Tensor], generated: tuple[Tensor, Tensor]) -> float:
    """Fréchet distance by the eigenvalues of a product that is not symmetric."""
    overlap = torch.linalg.eigvals(real[1] @ generated[1]).sqrt().real.sum()
    return distance(real, generated, float(overlap))


def by_root(real: tuple[Tensor, Tensor], generated: tuple[Tensor, Tensor]) -> float:
    """Fréchet distance by the root of a product that is not symmetric."""
    root = scipy.linalg.sqrtm((real[1] @ generated[1]).numpy())
    return distance(real, generated, float(root.trace().real))


def distance(real: tuple[Tensor, Tensor], generated: tuple[Tensor, Tensor], overlap: float) -> float:
    """Fréchet distance of two means and covariances. overlap: trace of the root of the product."""
    means = (real[0] - generated[0]).square().sum()
    return float(means + real[1].trace() + generated[1].trace()) - 2 * overlap


def main(features: int = 2048, pairs: int = 15) -> None:
    """Time the methods on equal moments, and compare their values."""
    real, generated = (moments(features, seed) for seed in (0, 1))
    both = real.mean_and_covariance(), generated.mean_and_covariance()
    found = Metric(*both[0], root(both[0][1]), generated)
    ratios = {}
    for name, general in {"root by scipy": by_root, "eigenvalues": by_eigenvalues}.items():
        assert abs(found.compute() / general(*both) - 1) < 1e-6, name
        ratios[f"with the real root / {name}"] = compare(found.compute, partial(general, *both), pairs, 1)
    keep(f"frechet-distance-{features}", ratios, f"{features} features, float64")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
