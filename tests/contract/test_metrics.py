"""What every metric keeps: update -> merge -> compute, and splitting is invisible."""

import math
from dataclasses import replace

import pytest
import torch

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.metric import ClassifierTest, Direction, Needs, SampleFeatures, SamplePairs, SplitFeatures
from paragan.layers.image_input import ImageInput
from paragan.metrics._options import CodebookOptions
from paragan.metrics.perceptual_distance import Layers

CLASSES = 3
CODES = 11


def judged(count, seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    features = spread * torch.randn(count, 6, generator=generator, dtype=torch.float64)
    logits = torch.randn(count, CLASSES, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randint(80, (count, 1, 2, 2), generator=generator)
    images = (80 * labels[:, None, None, None] + noise).to(torch.uint8)
    return SampleFeatures(features_BF=features, logits_BK=logits, requested_labels_B=labels, image_BCHW=images)


def pairs(count, seed, needs=frozenset()):
    """Images, or audio, with tokens of two codebooks of 11 codes."""
    generator = torch.Generator().manual_seed(seed)
    shape = (1, 400) if Needs.AUDIO in needs else (3, 12, 13)
    made, target = torch.rand(2, count, *shape, generator=generator, dtype=torch.float64) * 2 - 1
    tokens = torch.randint(CODES, (count, 2, 5), generator=generator)
    return SamplePairs(made, target, {"tokens": tokens})


REAL, FAKE = judged(80, seed=0), judged(60, seed=1, spread=0.6)
CUTS = ((0, 7), (7, 40), (40, 60))
KINDS = {name: registry.load_module("metrics", name).Metric for name in registry.names("metrics")}
PAIRED = [name for name, kind in KINDS.items() if Needs.PAIRS in kind.needs]
CODED = [name for name, kind in KINDS.items() if Needs.TOKENS in kind.needs]
JUDGED = [name for name in KINDS if name not in (*PAIRED, *CODED)]
WITHOUT_BEST_VALUE = ("density", "inception_score", "kid")  # real images in place of generated ones have no round value
WORSE = SampleFeatures(
    features_BF=0.2 * FAKE.features_BF + 5,
    logits_BK=torch.zeros_like(FAKE.logits_BK),
    requested_labels_B=FAKE.requested_labels_B,
    image_BCHW=torch.zeros_like(FAKE.image_BCHW),
)
PERFECT = replace(REAL, logits_BK=torch.nn.functional.one_hot(REAL.requested_labels_B).double())


def accuracy_after(images, labels):
    """The accuracy on REAL of a classifier by the nearest mean."""
    means = torch.stack([images[labels == label].double().mean((0, 1, 2, 3)) for label in range(CLASSES)])
    nearest = (REAL.image_BCHW.double().mean((1, 2, 3))[:, None] - means).abs().argmin(1)
    return float((nearest == REAL.requested_labels_B).double().mean())


class TwoMaps(torch.nn.Module):
    """Two layers of maps: the pixels, and their differences."""

    def forward(self, x):
        return {"0": x, "1": x[:, :, 1:] - x[:, :, :-1]}


def empty_of_pairs(kind):
    if kind.name in CODED:
        return kind.from_reference(None, CodebookOptions(codes=CODES, codebooks=2))
    if kind.name != "perceptual_distance":
        return kind.from_reference(None)
    return kind(
        layers=Layers(
            TwoMaps(), ImageInput(channels=3, size=None, mean=(0.4, 0.5, 0.6), std=(1.0, 1.0, 1.0)), ("0", "1"), True
        )
    )


def empty_metric(kind, real):
    """The metric of no images; held-out images, where it reads them, are as many and slightly different."""
    if kind.reference == "classifier":
        return kind.from_reference(ClassifierTest(accuracy_after, (1, 2, 2)))
    if kind.reference != "both":
        return kind.from_reference(real)
    shifted = SampleFeatures(
        features_BF=real.features_BF + 0.1, logits_BK=real.logits_BK, requested_labels_B=real.requested_labels_B
    )
    return kind.from_reference(SplitFeatures(real, shifted))


@pytest.fixture(params=KINDS)
def metric_of(request):
    """A metric that has seen nothing yet, and what it may be shown."""
    kind = KINDS[request.param]
    if request.param not in JUDGED:
        return empty_of_pairs(kind), pairs(60, 2, kind.needs)
    return empty_metric(kind, REAL), FAKE


@pytest.fixture
def empty(metric_of):
    return metric_of[0]


@pytest.fixture
def shown(metric_of):
    return metric_of[1]


@pytest.fixture
def parts(shown):
    return [shown.rows(first, end) for first, end in CUTS]


@pytest.mark.parametrize("name", KINDS)
def test_metric_name_matches_file(name):
    assert KINDS[name].name == name
    assert KINDS[name].note.endswith(".")


@pytest.mark.parametrize("name", JUDGED)
def test_metric_empty_reference_is_refused(name):
    if Needs.FEATURES not in KINDS[name].needs:
        pytest.skip("it does not look at the reference")
    with pytest.raises(ConfigError):
        empty_metric(KINDS[name], REAL.rows(0, 0))


@pytest.mark.parametrize("name", JUDGED)
def test_metric_needs_its_min_images_and_no_more(name):
    least = KINDS[name].min_images
    enough = REAL.rows(0, max(least, 5 * CLASSES if Needs.LABELS in KINDS[name].needs else 0))
    assert math.isfinite(empty_metric(KINDS[name], enough).update(FAKE).compute())
    with pytest.raises(ConfigError):
        empty_metric(KINDS[name], REAL.rows(0, least - 1)).update(FAKE.rows(0, least - 1)).compute()


@pytest.mark.parametrize("name", JUDGED)
def test_metric_reads_only_what_it_needs(name):
    needs = KINDS[name].needs

    def only(samples):
        features = samples.features_BF if Needs.FEATURES in needs else torch.zeros(len(samples), 1)
        logits = samples.logits_BK if needs & {Needs.LOGITS, Needs.CLASS_LOGITS} else None
        labels = samples.requested_labels_B if Needs.LABELS in needs else None
        images = samples.image_BCHW if Needs.IMAGES in needs else None
        return SampleFeatures(features_BF=features, logits_BK=logits, requested_labels_B=labels, image_BCHW=images)

    value = empty_metric(KINDS[name], only(REAL)).update(only(FAKE)).compute()
    assert value == empty_metric(KINDS[name], REAL).update(FAKE).compute()


@pytest.mark.parametrize("name", KINDS)
def test_metric_direction_is_that_of_better_images(name):
    if name in CODED:
        tokens = torch.arange(2 * CODES).view(1, 2, CODES) % CODES
        both = (SamplePairs(tokens, tokens, {"tokens": x}) for x in (tokens, 0 * tokens))
        better, worse = (empty_of_pairs(KINDS[name]).update(x).compute() for x in both)
    elif name in PAIRED:
        target = pairs(9, 3, KINDS[name].needs).target
        empty = empty_of_pairs(KINDS[name])
        better, worse = (empty.update(SamplePairs(made, target)).compute() for made in (target, target + 0.3))
    else:
        empty = empty_metric(KINDS[name], REAL)
        better, worse = (empty.update(samples).compute() for samples in (PERFECT, WORSE))
    match KINDS[name].direction:
        case Direction.LOWER:
            assert better < worse
        case Direction.HIGHER:
            assert better > worse
        case Direction.NEITHER:
            assert abs(better - 1) < abs(worse - 1)


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
    kind = KINDS[name]
    found = pairs(9, 3, kind.needs)
    found = SamplePairs(found.made.float(), found.target.float())
    empty = empty_of_pairs(kind)
    assert empty.update(found) == empty.update(SamplePairs(found.made.double(), found.target.double()))


@pytest.mark.parametrize("name", PAIRED)
def test_metric_equal_pairs_have_best_value(name):
    target = pairs(9, 3, KINDS[name].needs).target
    near, far = (target + noise for noise in (0.1, 0.3))
    equal, near, far = (
        empty_of_pairs(KINDS[name]).update(SamplePairs(made, target)).compute() for made in (target, near, far)
    )
    assert equal in (0, 1, 100)
    assert abs(equal - near) < abs(equal - far)


@pytest.mark.parametrize("name", JUDGED)
def test_metric_float32_is_accumulated_in_float64(name):
    """Far from the origin, where sums of squares in float32 have lost what matters."""

    def value(dtype):
        real, fake = (replace(j, features_BF=(j.features_BF.float() + 1000).to(dtype)) for j in (REAL, FAKE))
        return empty_metric(KINDS[name], real).update(fake).compute()

    assert value(torch.float32) == value(torch.float64)


@pytest.mark.parametrize("name", [name for name in JUDGED if name not in WITHOUT_BEST_VALUE])
def test_metric_real_images_have_best_value(name):
    """Every metric says so with one of its two ends: 0 for distances, 1 for shares and ratios."""
    value = empty_metric(KINDS[name], REAL).update(PERFECT).compute()
    assert min(abs(value), abs(value - 1)) < 1e-9
