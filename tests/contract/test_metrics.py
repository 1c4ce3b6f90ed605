"""What every metric keeps: update -> merge -> compute, and splitting is invisible."""

from __future__ import annotations

import pytest
import torch

from paragan.core import registry
from paragan.core.tree import map_tensors
from paragan.metrics._pairs import ImagePairs, PairMean
from paragan.metrics._sample_features import SampleFeatures

CLASSES = 3


def judged(count, seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    features = spread * torch.randn(count, 6, generator=generator, dtype=torch.float64)
    logits = torch.randn(count, CLASSES, generator=generator, dtype=torch.float64)
    return SampleFeatures(features, logits, torch.randint(CLASSES, (count,), generator=generator))


def pairs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    made, target = torch.rand(2, count, 3, 12, 13, generator=generator, dtype=torch.float64) * 2 - 1
    return ImagePairs(made, target)


REAL, FAKE = judged(80, seed=0), judged(60, seed=1, spread=0.6)
CUTS = ((0, 7), (7, 40), (40, 60))
PAIRED = [name for name in registry.names("metrics") if issubclass(registry.load("metrics", name).Metric, PairMean)]
JUDGED = [name for name in registry.names("metrics") if name not in PAIRED]


@pytest.fixture(params=registry.names("metrics"))
def metric_of(request):
    """A metric that has seen nothing yet, and what it may be shown."""
    kind = registry.load("metrics", request.param).Metric
    return (kind(), pairs(60, seed=2)) if request.param in PAIRED else (kind.from_reference(REAL), FAKE)


@pytest.fixture
def empty(metric_of):
    return metric_of[0]


@pytest.fixture
def shown(metric_of):
    return metric_of[1]


@pytest.fixture
def parts(shown):
    return [shown.rows(first, end) for first, end in CUTS]


def test_metric_name_matches_file():
    named = {name: registry.load("metrics", name).Metric.name for name in registry.names("metrics")}
    assert len(set(named.values())) == len(named)
    assert {name for name, metric in named.items() if name != metric} <= {"frechet"}  # known as fd


def test_metric_computes_a_number(empty, shown, parts):
    value = empty.update(shown).compute()
    assert type(value) is float
    assert value >= 0


def test_metric_updates_equal_the_whole(empty, shown, parts):
    metric = empty
    for part in parts:
        metric = metric.update(part)
    assert metric.compute() == pytest.approx(empty.update(shown).compute(), rel=1e-12)


def test_metric_merged_shards_equal_the_whole(empty, shown, parts):
    a, b, c = (empty.update(part) for part in parts)
    whole = pytest.approx(empty.update(shown).compute(), rel=1e-12)
    assert a.merge(b).merge(c).compute() == whole
    assert a.merge(b.merge(c)).compute() == whole
    assert c.merge(a).merge(b).compute() == whole


def test_metric_merge_with_empty_is_identity(empty, shown):
    metric = empty.update(shown)
    assert metric.merge(empty).compute() == empty.merge(metric).compute() == metric.compute()


def test_metric_is_immutable(empty, shown, parts):
    metric = empty.update(parts[0])
    before = metric.update(parts[1]).compute()
    metric.update(parts[2])
    metric.merge(metric)
    assert metric.update(parts[1]).compute() == before


@pytest.mark.parametrize("name", PAIRED)
def test_paired_metric_float32_is_accumulated_in_float64(name):
    found, kind = pairs(9, seed=3), registry.load("metrics", name).Metric
    found = ImagePairs(found.made.float(), found.target.float())
    assert kind().update(found) == kind().update(ImagePairs(found.made.double(), found.target.double()))


@pytest.mark.parametrize("name", PAIRED)
def test_metric_equal_pairs_have_best_value(name):
    target = pairs(9, seed=3).target
    near, far = (target + noise for noise in (0.1, 0.3))
    equal, near, far = (
        registry.load("metrics", name).Metric().update(ImagePairs(made, target)).compute()
        for made in (target, near, far)
    )
    assert equal in (0, 1, 100)
    assert abs(equal - near) < abs(equal - far)


@pytest.mark.parametrize("name", JUDGED)
def test_metric_float32_is_accumulated_in_float64(name):
    """Far from the origin, where sums of squares in float32 have lost what matters."""

    def value(dtype):
        real, fake = (
            SampleFeatures(j.features_BF.float() + 1000, j.logits_BK, j.requested_labels_B) for j in (REAL, FAKE)
        )
        real, fake = (SampleFeatures(j.features_BF.to(dtype), j.logits_BK, j.requested_labels_B) for j in (real, fake))
        return registry.load("metrics", name).Metric.from_reference(real).update(fake).compute()

    assert value(torch.float32) == value(torch.float64)


def test_metric_state_is_serializable(empty, shown):
    metric = empty.update(shown)
    assert map_tensors(torch.clone, metric).compute() == metric.compute()


@pytest.mark.parametrize("name", JUDGED)
def test_metric_real_images_have_best_value(name):
    """Every metric says so with one of its two ends: 0 for distances, 1 for shares and ratios."""
    perfect = SampleFeatures(
        REAL.features_BF, torch.nn.functional.one_hot(REAL.requested_labels_B).double(), REAL.requested_labels_B
    )
    value = registry.load("metrics", name).Metric.from_reference(REAL).update(perfect).compute()
    assert min(abs(value), abs(value - 1)) < 1e-9
