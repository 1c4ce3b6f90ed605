"""The Frechet distance equals the textbook formula with a general matrix root, also where covariances are singular."""

import numpy as np
import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures
from paragan.metrics import fd


def features(count, num_features, seed, scale=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(num_features, num_features, generator=generator, dtype=torch.float64)
    return scale * torch.randn(count, num_features, generator=generator, dtype=torch.float64) @ mixing + shift


def distance(real_BF, fake_BF):
    return (
        fd.Metric.from_reference(SampleFeatures(features_BF=real_BF))
        .update(SampleFeatures(features_BF=fake_BF))
        .compute()
    )


def plain_distance(real_BF, fake_BF):
    real, fake = real_BF.numpy(), fake_BF.numpy()
    a, b = np.cov(real, rowvar=False), np.cov(fake, rowvar=False)
    gap = np.sum((real.mean(0) - fake.mean(0)) ** 2)
    from scipy.linalg import sqrtm  # a third of a second to import, which all processes of tests would take

    return gap + np.trace(a) + np.trace(b) - 2 * np.trace(sqrtm(a @ b)).real


@pytest.mark.parametrize("shift", [0.0, 0.3, 100.0])
def test_frechet_matches_formula(shift):
    real, fake = features(500, 12, seed=0), features(300, 12, seed=1, scale=1.5, shift=shift)
    assert distance(real, fake) == pytest.approx(plain_distance(real, fake), rel=1e-10)


def test_frechet_in_one_dimension_matches_closed_form():
    real = torch.tensor([[0.0], [2.0]], dtype=torch.float64)  # mean 1, variance 2
    fake = torch.tensor([[3.0], [11.0]], dtype=torch.float64)  # mean 7, variance 32
    assert distance(real, fake) == pytest.approx(6**2 + (32**0.5 - 2**0.5) ** 2, rel=1e-12)


def test_frechet_of_fewer_images_than_features_is_finite():
    """Covariances without an inverse; the general root is only good to half the digits there."""
    real, fake = features(20, 40, seed=0), features(15, 40, seed=1)
    assert distance(real, fake) == pytest.approx(plain_distance(real, fake), rel=1e-6)


@pytest.mark.parametrize("count", [0, 1])
def test_frechet_too_few_images_is_refused(count):
    metric = fd.Metric.from_reference(SampleFeatures(features_BF=features(10, 3, seed=0))).update(
        SampleFeatures(features_BF=features(count, 3, seed=1))
    )
    with pytest.raises(ConfigError, match=r"evaluation\.num_images"):
        metric.compute()
