"""Intervals of scores: their width is that of the values of independent scores."""

import functools
import math

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures
from paragan.evaluation.interval import half_sample_interval
from paragan.metrics import coverage, density, fd, kid, precision, recall

COUNT, FEATURES = 400, 4


def drawn(seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return SampleFeatures(features_BF=spread * torch.randn(COUNT, FEATURES, generator=generator))


def test_interval_of_a_mean_is_its_standard_error():
    values = drawn(0).features_BF[:, 0].double()
    low, high = half_sample_interval(float(values.mean()), lambda rows: float(values[rows].mean()), COUNT, 500)
    assert (low + high) / 2 == pytest.approx(float(values.mean()), abs=1e-12)
    assert (high - low) / (2 * 1.96) == pytest.approx(float(values.std()) / math.sqrt(COUNT), rel=0.1)


@pytest.mark.parametrize("module", [fd, kid, precision])
def test_interval_is_as_wide_as_independent_values_vary(module):
    empty = module.Metric.from_reference(drawn(99))
    spread = torch.tensor([empty.update(drawn(seed, 1.2)).compute() for seed in range(60)]).std()
    errors = []
    for seed in range(6):
        samples = drawn(seed, 1.2)
        compute = functools.partial(value_of_rows, empty, samples)
        low, high = half_sample_interval(0.0, compute, COUNT, 40)
        errors.append((high - low) / (2 * 1.96))
    assert sum(errors) / 6 == pytest.approx(float(spread), rel=0.4)


def value_of_rows(empty, samples, rows):
    return empty.update(samples.select(rows)).compute()


def test_interval_of_a_metric_that_needs_more_images_is_none():
    def compute(rows):
        raise ConfigError("too few")

    assert half_sample_interval(1.0, compute, COUNT, 20) is None
    assert half_sample_interval(1.0, lambda rows: 1.0, COUNT, 0) is None
    assert half_sample_interval(1.0, lambda rows: 1.0, 1, 20) is None


@pytest.mark.parametrize("value", [0.0, 0.02, 0.99, 1.0])
def test_interval_of_a_share_is_that_of_a_number_within_0_and_1(value):
    def compute(rows):
        return value + 0.1 * float(rows[0] % 2)

    low, high = half_sample_interval(value, compute, COUNT, 20)
    assert low < 0 or high > 1
    assert half_sample_interval(value, compute, COUNT, 20, is_share=True) == (max(low, 0.0), min(high, 1.0))


@pytest.mark.parametrize("kind", [fd.Metric, kid.Metric, density.Metric])
def test_metric_beyond_1_is_no_share(kind):
    assert not kind.is_share


@pytest.mark.parametrize("kind", [precision.Metric, recall.Metric, coverage.Metric])
def test_share_of_distant_images_has_no_interval_below_0(kind):
    real, fakes = drawn(0), drawn(1, spread=8.0)
    empty = kind.from_reference(real)
    value = empty.update(fakes).compute()
    assert 0 <= value <= 1

    def compute(rows):
        return empty.update(fakes.select(rows)).compute()

    low, high = half_sample_interval(value, compute, COUNT, 10, kind.is_share)
    assert 0 <= low <= value <= high <= 1
