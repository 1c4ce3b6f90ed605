"""Label accuracy, variance within classes and coverage equal the plainest computation."""

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures
from paragan.metrics import class_variance_mean, class_variance_min, coverage, diversity, label_accuracy


def normal(count, num_features=4, seed=0, dtype=torch.float64):
    return torch.randn(count, num_features, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_label_accuracy_is_share_of_correct_classes():
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [5.0, 0.0, 4.0], [0.0, 0.0, 1.0]])
    judged = SampleFeatures(features_BF=normal(4), logits_BK=logits, requested_labels_B=torch.tensor([0, 1, 2, 2]))
    assert label_accuracy.Metric.from_reference(judged).update(judged).compute() == 3 / 4


def test_label_accuracy_needs_classes_and_images():
    without = SampleFeatures(features_BF=normal(4))
    with pytest.raises(ConfigError, match="the requested labels"):
        label_accuracy.Metric.from_reference(without).update(without)
    with pytest.raises(ConfigError, match="no images to compare"):
        label_accuracy.Metric.from_reference(without).compute()


def variances(judged, classes):
    return torch.stack([judged.features_BF[judged.requested_labels_B == c].var(0).sum() for c in classes])


def test_class_variance_is_ratio_per_class():
    real = SampleFeatures(features_BF=normal(300, seed=1), logits_BK=None, requested_labels_B=torch.arange(300) % 3)
    fake = SampleFeatures(
        features_BF=0.7 * normal(90, seed=2) + 5, logits_BK=None, requested_labels_B=torch.arange(90) % 3
    )
    ratios = variances(fake, range(3)) / variances(real, range(3))
    for module, expected in ((class_variance_min, ratios.min()), (class_variance_mean, ratios.mean())):
        assert module.Metric.from_reference(real).update(fake).compute() == pytest.approx(float(expected), rel=1e-10)


def test_class_variance_min_shows_one_collapsed_class():
    real = SampleFeatures(features_BF=normal(300, seed=1), logits_BK=None, requested_labels_B=torch.arange(300) % 3)
    features = normal(300, seed=2)
    features[::3] = features[0]
    fake = SampleFeatures(features_BF=features, logits_BK=None, requested_labels_B=real.requested_labels_B)
    assert class_variance_min.Metric.from_reference(real).update(fake).compute() == pytest.approx(0, abs=1e-12)
    assert class_variance_mean.Metric.from_reference(real).update(fake).compute() > 0.5


@pytest.mark.parametrize("labels", [[0, 0, 1], [1, 0, 0, 2], [2] * 5 + [1]])
def test_class_variance_leaves_out_classes_of_a_single_image(labels):
    """Held-out real images of a rare class are one or none: their minimum was 0, with which nothing compares."""
    real = SampleFeatures(features_BF=normal(300), logits_BK=None, requested_labels_B=torch.arange(300) % 3)
    label_N = torch.tensor(labels)
    fake = SampleFeatures(features_BF=normal(len(labels), seed=3), logits_BK=None, requested_labels_B=label_N)
    (frequent,) = {label for label in labels if labels.count(label) > 1}
    expected = float(variances(fake, [frequent]) / variances(real, [frequent]))
    for metric in (class_variance_min, class_variance_mean):
        assert metric.Metric.from_reference(real).update(fake).compute() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("labels", [[0, 1], [], [7, 7], [0, 7, 7]])
@pytest.mark.parametrize("module", [class_variance_min, class_variance_mean])
def test_class_variance_without_two_images_of_a_class_is_none_and_not_a_collapse(module, labels):
    real = SampleFeatures(features_BF=normal(300), logits_BK=None, requested_labels_B=torch.arange(300) % 3)
    label_N = torch.tensor(labels, dtype=torch.int64)
    fake = SampleFeatures(features_BF=normal(len(labels)), logits_BK=None, requested_labels_B=label_N)
    with pytest.raises(ConfigError, match="no class has two images"):
        module.Metric.from_reference(real).update(fake).compute()


def copies(count):
    return normal(1, seed=count).relu().expand(count, -1)


def test_a_class_of_equal_real_images_has_no_variance_of_rounding():
    """Sums in float64 leave a variance of 1e-15, to which that of generated images has a ratio of 1e14."""
    varied = normal(30, seed=1)
    fake = SampleFeatures(features_BF=normal(60, seed=2), requested_labels_B=torch.arange(60) % 2)
    only_varied = SampleFeatures(features_BF=varied, requested_labels_B=torch.ones(30, dtype=torch.int64))
    expected = class_variance_mean.Metric.from_reference(only_varied).update(fake).compute()
    for count in range(2, 60):
        labels = torch.tensor([0] * count + [1] * 30)
        real = SampleFeatures(features_BF=torch.cat([copies(count), varied]), requested_labels_B=labels)
        assert class_variance_mean.Metric.from_reference(real).update(fake).compute() == pytest.approx(expected)
        with pytest.raises(ConfigError, match="no class has two different real images"):
            class_variance_min.Metric.from_reference(real.rows(0, count))


def test_diversity_of_equal_real_images_is_refused_whatever_the_rounding():
    for count in range(2, 60):
        with pytest.raises(ConfigError, match="real images whose features differ"):
            diversity.Metric.from_reference(SampleFeatures(features_BF=copies(count)))


@pytest.mark.parametrize("feature", [0.0, 0.1, 3.0])
def test_diversity_of_equal_generated_images_is_0_also_if_their_features_are(feature):
    metric = diversity.Metric.from_reference(SampleFeatures(features_BF=normal(30)))
    assert metric.update(SampleFeatures(features_BF=torch.full((9, 4), feature))).compute() == 0


@pytest.mark.parametrize("labels", [[0] * 10 + [1] * 10, [0] * 10 + [1] * 10 + [2], [0] * 10 + [3] * 10 + [1]])
def test_class_variance_counts_only_classes_with_two_real_images(labels):
    """A class that the reference lacks, or has once, is none, wherever its number stands."""
    label_N = torch.tensor(labels)
    real = SampleFeatures(features_BF=normal(len(labels)), logits_BK=None, requested_labels_B=label_N)
    frequent = sorted(label for label in set(labels) if labels.count(label) > 1)
    fake_label = torch.arange(60) % 6
    fake = SampleFeatures(features_BF=normal(60, seed=1), logits_BK=None, requested_labels_B=fake_label)
    ratios = [
        float(
            fake.features_BF[fake_label == k].double().var(0).sum()
            / real.features_BF[label_N == k].double().var(0).sum()
        )
        for k in frequent
    ]
    for metric, expected in ((class_variance_mean, sum(ratios) / len(ratios)), (class_variance_min, min(ratios))):
        assert metric.Metric.from_reference(real).update(fake).compute() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("real", "fake", "found"),
    [
        (SampleFeatures(features_BF=normal(4)), None, "needs real images with labels"),
        (
            SampleFeatures(features_BF=normal(2), logits_BK=None, requested_labels_B=torch.tensor([0, 1])),
            None,
            "no class has two different real images",
        ),
        (
            SampleFeatures(features_BF=normal(4), logits_BK=None, requested_labels_B=torch.zeros(4).long()),
            SampleFeatures(features_BF=normal(4)),
            "needs images with requested labels; use data with classes",
        ),
    ],
)
def test_class_variance_invalid_input_is_refused(real, fake, found):
    with pytest.raises(ConfigError, match=found):
        class_variance_min.Metric.from_reference(real).update(fake)


def test_coverage_of_a_perfect_generator_is_as_expected():
    """N real and M generated images of one distribution: the k nearest of N - 1 + M others are real by chance alone."""
    n, m, k = 200, 150, coverage.K
    missed = 1.0
    for i in range(1, k + 1):
        missed *= (n - i) / (n + m - i)
    values = [
        coverage.Metric.from_reference(SampleFeatures(features_BF=normal(n, seed=2 * s)))
        .update(SampleFeatures(features_BF=normal(m, seed=2 * s + 1)))
        .compute()
        for s in range(30)
    ]
    assert sum(values) / 30 == pytest.approx(1 - missed, abs=0.01)


def test_coverage_of_copies_is_one_and_of_nothing_zero():
    real = SampleFeatures(
        features_BF=1000 + normal(40)
    )  # far from the origin, where inner products make equal rows differ
    metric = coverage.Metric.from_reference(real)
    assert metric.compute() == 0
    assert metric.update(real).compute() == 1
    assert not metric.update(real).nearest_N.any()


def test_coverage_of_many_equal_images():
    """Six equal real images have no room around them: only the same image covers them."""
    real = torch.cat([torch.zeros(6, 3), 10 + normal(30, 3, dtype=torch.float32)])
    metric = coverage.Metric.from_reference(SampleFeatures(features_BF=real))
    near, exact = (
        metric.update(SampleFeatures(features_BF=torch.full((1, 3), value))).compute() for value in (1e-6, 0.0)
    )
    assert (near, exact) == (0, 6 / 36)


def test_coverage_needs_more_than_k_real_images():
    with pytest.raises(ConfigError, match=r"evaluation\.num_images"):
        coverage.Metric.from_reference(SampleFeatures(features_BF=normal(coverage.K)))


def test_sample_features_concatenated_rows_are_the_whole():
    whole = SampleFeatures(features_BF=normal(10), logits_BK=normal(10, 3), requested_labels_B=torch.arange(10))
    joined = SampleFeatures.concatenate([whole.rows(0, 4), whole.rows(4, 5), whole.rows(5, 10)])
    assert torch.equal(joined.features_BF, whole.features_BF)
    assert torch.equal(joined.logits_BK, whole.logits_BK)
    assert torch.equal(joined.requested_labels_B, whole.requested_labels_B)
    assert len(joined) == 10
