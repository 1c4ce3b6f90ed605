"""The memorisation metric finds a generator that copies training images."""

import pytest
import torch

from paragan.core.metric import SampleFeatures, SplitFeatures
from paragan.metrics import memorisation

COUNT, FEATURES = 300, 8


def drawn(seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return SampleFeatures(features_BF=spread * torch.randn(COUNT, FEATURES, generator=generator))


TRAIN, HELD_OUT = drawn(0), drawn(1)


def value(generated):
    return memorisation.Metric.from_reference(SplitFeatures(TRAIN, HELD_OUT)).update(generated).compute()


def test_memorisation_equals_mann_whitney():
    generated = drawn(2, spread=1.1)
    held_out, made = (
        torch.cdist(images.features_BF.double(), TRAIN.features_BF.double()).amin(1).numpy()
        for images in (HELD_OUT, generated)
    )
    from scipy.stats import mannwhitneyu  # seconds to import, which all processes of tests would take

    statistic = mannwhitneyu(held_out, made).statistic
    assert value(generated) == pytest.approx(statistic / COUNT**2, rel=1e-12)


def test_memorisation_of_copies_is_one():
    assert value(TRAIN) == 1
    nearly = SampleFeatures(features_BF=TRAIN.features_BF + 0.01 * drawn(4).features_BF)
    assert value(nearly) > 0.99
