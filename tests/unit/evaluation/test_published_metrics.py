"""Metrics equal the implementations whose values are published, on the same features."""

import numpy as np
import pytest
import torch
from torch import nn

from paragan.core import registry
from paragan.core.metric import SampleFeatures

COUNT, FEATURES, CLASSES = 400, 16, 7


class Given(nn.Module):
    """An extractor for torchmetrics whose images are the features themselves."""

    num_features = FEATURES

    def forward(self, x):
        return x.flatten(1)


@pytest.fixture(scope="module")
def real():
    return drawn(0, 1.0, 0.0)


@pytest.fixture(scope="module")
def generated():
    return drawn(1, 1.1, 0.6)


def drawn(seed, spread, shift):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(FEATURES, FEATURES, generator=torch.Generator().manual_seed(9), dtype=torch.float64) / 4
    features = (spread * torch.randn(COUNT, FEATURES, generator=generator, dtype=torch.float64) + shift) @ mix
    logits = 2 * torch.randn(COUNT, CLASSES, generator=generator, dtype=torch.float64)
    return SampleFeatures(features_BF=features, logits_BK=logits)


def value(name, real, generated):
    return registry.load_module("metrics", name).Metric.from_reference(real).update(generated).compute()


def images(samples):
    return samples.features_BF[:, :, None, None]


def test_kid_equals_torchmetrics(real, generated):
    from torchmetrics.image.kid import KernelInceptionDistance  # a second to import, in every worker

    metric = KernelInceptionDistance(feature=Given(), subsets=1, subset_size=COUNT, normalize=True)
    metric.set_dtype(torch.float64)
    metric.update(images(real), real=True)
    metric.update(images(generated), real=False)
    assert value("kid", real, generated) == pytest.approx(float(metric.compute()[0]), rel=1e-4)


def test_kid_is_the_plain_estimator_also_of_three_shards(real, generated):
    """Binkowski et al. 2018, equation 4, pair by pair."""
    x = [row.numpy() for row in generated.features_BF[:60]]
    y = [row.numpy() for row in real.features_BF[:50]]

    def mean(pairs):
        return np.mean([(a @ b / FEATURES + 1) ** 3 for a, b in pairs])

    within = [mean((a, b) for i, a in enumerate(z) for j, b in enumerate(z) if i != j) for z in (x, y)]
    expected = sum(within) - 2 * mean((a, b) for a in x for b in y)
    few = SampleFeatures(features_BF=real.features_BF[:50], logits_BK=real.logits_BK[:50])
    empty = registry.load_module("metrics", "kid").Metric.from_reference(few)
    parts = [slice(0, 7), slice(7, 30), slice(30, 60)]
    shards = [
        empty.update(SampleFeatures(features_BF=generated.features_BF[part], logits_BK=generated.logits_BK[part]))
        for part in parts
    ]
    assert shards[0].merge(shards[1]).merge(shards[2]).compute() == pytest.approx(expected, rel=1e-10)


def test_inception_score_equals_the_formula_of_torch_fidelity(real, generated):
    from scipy.special import rel_entr, softmax  # as in test_fd.py

    probability = softmax(generated.logits_BK.numpy(), axis=1)
    scores = []
    for part in range(10):
        shares = probability[part::10]
        scores.append(np.exp(rel_entr(shares, shares.mean(0, keepdims=True)).sum(1).mean()))
    assert value("inception_score", real, generated) == pytest.approx(np.mean(scores), rel=1e-9)


def test_fd_equals_the_formula_of_torch_fidelity(real, generated):
    """Its `fid_statistics_to_metric`, with scipy's general root of the product of the covariances."""
    a, b = real.features_BF.numpy(), generated.features_BF.numpy()
    sigma1, sigma2 = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    difference = a.mean(0) - b.mean(0)
    from scipy.linalg import sqrtm  # as in test_fd.py

    root = sqrtm(sigma1 @ sigma2)
    expected = difference @ difference + np.trace(sigma1) + np.trace(sigma2) - 2 * np.trace(root.real)
    assert value("fd", real, generated) == pytest.approx(expected, rel=1e-6)


def prdc(real, fake, k):
    """Precision, recall, density and coverage of M. F. Naeem et al., by whole matrices."""

    def between(a, b):
        return np.linalg.norm(a[:, None] - b[None], axis=2)

    real_radius = np.sort(between(real, real), axis=1)[:, k]
    fake_radius = np.sort(between(fake, fake), axis=1)[:, k]
    distance = between(real, fake)
    return {
        "precision": (distance < real_radius[:, None]).any(0).mean(),
        "recall": (distance < fake_radius[None]).any(1).mean(),
        "density": (distance < real_radius[:, None]).sum(0).mean() / k,
        "coverage": (distance.min(1) < real_radius).mean(),
    }


@pytest.mark.parametrize(("name", "k"), [("precision", 3), ("recall", 3), ("density", 5), ("coverage", 5)])
def test_neighbourhood_metrics_equal_their_definition(real, generated, name, k):
    expected = prdc(real.features_BF.numpy(), generated.features_BF.numpy(), k)[name]
    assert 0.05 < expected < (0.95 if name != "density" else 2)
    assert value(name, real, generated) == pytest.approx(expected, rel=1e-4)
