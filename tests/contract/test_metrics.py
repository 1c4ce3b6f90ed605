"""What every metric keeps: update -> merge -> compute, and splitting is invisible."""

from __future__ import annotations

import pytest
import torch

from paragan.core import shelf
from paragan.core.tree import map_tensors
from paragan.metrics._judged import Judged

CLASSES = 3


def judged(count, seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    features = spread * torch.randn(count, 6, generator=generator, dtype=torch.float64)
    logits = torch.randn(count, CLASSES, generator=generator, dtype=torch.float64)
    return Judged(features, logits, torch.randint(CLASSES, (count,), generator=generator))


REAL, FAKE = judged(80, seed=0), judged(60, seed=1, spread=0.6)
PARTS = [FAKE.rows(first, end) for first, end in ((0, 7), (7, 40), (40, 60))]


@pytest.fixture(params=shelf.names("metrics"))
def empty(request):
    return shelf.load("metrics", request.param).Metric.against(REAL)


def test_a_file_is_named_as_its_metric_or_the_metric_has_a_shorter_name():
    named = {name: shelf.load("metrics", name).Metric.name for name in shelf.names("metrics")}
    assert len(set(named.values())) == len(named)
    assert {name for name, metric in named.items() if name != metric} <= {"frechet"}  # known as fd


def test_it_computes_a_number(empty):
    value = empty.update(FAKE).compute()
    assert type(value) is float
    assert value >= 0


def test_updates_are_the_whole(empty):
    metric = empty
    for part in PARTS:
        metric = metric.update(part)
    assert metric.compute() == pytest.approx(empty.update(FAKE).compute(), rel=1e-12)


def test_shards_merged_are_the_whole(empty):
    a, b, c = (empty.update(part) for part in PARTS)
    whole = pytest.approx(empty.update(FAKE).compute(), rel=1e-12)
    assert a.merge(b).merge(c).compute() == whole
    assert a.merge(b.merge(c)).compute() == whole
    assert c.merge(a).merge(b).compute() == whole


def test_merging_with_nothing_changes_nothing(empty):
    metric = empty.update(FAKE)
    assert metric.merge(empty).compute() == empty.merge(metric).compute() == metric.compute()


def test_a_metric_is_a_value(empty):
    metric = empty.update(PARTS[0])
    before = metric.update(PARTS[1]).compute()
    metric.update(PARTS[2])
    metric.merge(metric)
    assert metric.update(PARTS[1]).compute() == before


def test_float32_is_counted_in_float64(empty):
    """Far from the origin, where sums of squares in float32 have lost what matters."""

    def value(dtype):
        real, fake = (Judged(j.features_BF.float() + 1000, j.logits_BK, j.asked_B) for j in (REAL, FAKE))
        real, fake = (Judged(j.features_BF.to(dtype), j.logits_BK, j.asked_B) for j in (real, fake))
        return type(empty).against(real).update(fake).compute()

    assert value(torch.float32) == value(torch.float64)


def test_its_state_is_tensors_that_can_travel(empty):
    metric = empty.update(FAKE)
    assert map_tensors(torch.clone, metric).compute() == metric.compute()


def test_real_against_real_is_as_good_as_it_gets(empty):
    """Every metric says so with one of its two ends: 0 for distances, 1 for shares and ratios."""
    perfect = Judged(REAL.features_BF, torch.nn.functional.one_hot(REAL.asked_B).double(), REAL.asked_B)
    value = empty.update(perfect).compute()
    assert min(abs(value), abs(value - 1)) < 1e-9
