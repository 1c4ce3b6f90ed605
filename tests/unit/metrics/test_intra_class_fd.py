"""Intra-class Fréchet distance: the mean of `fd` over the classes, also for few images."""

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures
from paragan.metrics import fd, intra_class_fd

CLASSES, FEATURES = 3, 5


def labelled(seed, count, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    features = spread * torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    return SampleFeatures(features_BF=features, logits_BK=None, requested_labels_B=torch.arange(count) % CLASSES)


def of_class(samples, label):
    return samples.select(samples.requested_labels_B == label)


@pytest.mark.parametrize("count", [90, 9])
def test_intra_class_fd_is_the_mean_over_classes(count):
    real, generated = labelled(0, count), labelled(1, count, spread=1.5)
    expected = [
        fd.Metric.from_reference(of_class(real, label)).update(of_class(generated, label)).compute()
        for label in range(CLASSES)
    ]
    found = intra_class_fd.Metric.from_reference(real).update(generated).compute()
    assert found == pytest.approx(sum(expected) / CLASSES, rel=1e-7)


def test_intra_class_fd_sees_exchanged_classes():
    real = labelled(0, 300)
    real = SampleFeatures(
        features_BF=real.features_BF + 3 * real.requested_labels_B[:, None],
        logits_BK=None,
        requested_labels_B=real.requested_labels_B,
    )
    exchanged = SampleFeatures(
        features_BF=real.features_BF, logits_BK=None, requested_labels_B=(real.requested_labels_B + 1) % CLASSES
    )
    empty = intra_class_fd.Metric.from_reference(real)
    assert empty.update(real).compute() < 1e-9
    assert empty.update(exchanged).compute() > 9
    assert fd.Metric.from_reference(real).update(exchanged).compute() < 1e-9


def test_intra_class_fd_missing_class_is_refused():
    real, generated = labelled(0, 30), labelled(1, 30)
    with pytest.raises(ConfigError, match="generated images of each class, but class 2"):
        intra_class_fd.Metric.from_reference(real).update(generated.select(generated.requested_labels_B < 2)).compute()
    with pytest.raises(ConfigError, match="a class of at least 2 real images"):
        intra_class_fd.Metric.from_reference(labelled(0, 3))


def test_intra_class_fd_counts_only_classes_with_two_real_images():
    real, generated = labelled(0, 60), labelled(1, 60)
    label_N = real.requested_labels_B
    expected = intra_class_fd.Metric.from_reference(real.select(label_N != 1)).update(generated).compute()
    one_of_1 = torch.cat([(label_N == 1).nonzero().flatten()[:1], (label_N != 1).nonzero().flatten()])
    assert intra_class_fd.Metric.from_reference(real.select(one_of_1)).update(generated).compute() == expected
    few = intra_class_fd.Metric.from_reference(real.select(label_N < 2)).update(generated)
    assert (
        few.compute()
        == intra_class_fd.Metric.from_reference(real.select(label_N < 2))
        .update(generated.select(generated.requested_labels_B < 2))
        .compute()
    )
