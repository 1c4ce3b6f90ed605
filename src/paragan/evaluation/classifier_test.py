"""Test of generated images by a classifier that is trained on them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from paragan.core.metric import ClassifierTest
from paragan.core.progress_lines import ProgressLines
from paragan.core.source import Source
from paragan.datasets._in_memory import InMemorySource
from paragan.features import _classifier as classifier
from paragan.features._classifier import train_classifier
from paragan.features._extractor import FeatureExtractor

_SEED = 0


def classifier_test(held_out: Source, say: Callable[[str], None]) -> ClassifierTest:
    """Return a test on up to 10,000 held-out images. say: receives lines of progress."""

    def accuracy_after(image_NCHW: Tensor, label_N: Tensor) -> float:
        generated = InMemorySource(image_NCHW, label_N, held_out.class_names)
        progress = ProgressLines("score", "steps of a classifier of generated images", classifier.STEPS, say)
        net = train_classifier(generated, _SEED, progress)
        trained = FeatureExtractor("cas", net, held_out.shape, len(held_out.class_names), sha256="")
        found = trained.with_accuracy(held_out).accuracy
        assert found is not None, "the data has classes"
        return found

    return ClassifierTest(accuracy_after, held_out.shape)
