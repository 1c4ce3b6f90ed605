"""The classification accuracy score: a classifier trained on generated images recognises real ones, or does not."""

import json

import pytest
import torch

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.core.metric import Needs
from paragan.core.option_types import Choice
from paragan.datasets import digits
from paragan.evaluation.chosen_metrics import choose_metrics
from paragan.evaluation.evaluator import Evaluator, classifier_test
from paragan.features.base import classifier as classifier
from paragan.features.base.extractor import FeatureExtractor, real_batch
from paragan.features.judge import train_or_load

SMALL = tuple(digits.source(digits.Options(8), split) for split in ("train", "held_out"))


@pytest.fixture(autouse=True, scope="module")
def quick_classifier():
    """100 steps: nine of ten held-out digits of 8 px are recognised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classifier, "STEPS", 100)
        yield


@pytest.fixture(scope="module")
def evaluator():
    flat = FeatureExtractor(name="flat", network=torch.nn.Flatten(), shape=(1, 8, 8), num_classes=None, sha256="")
    return Evaluator(
        extractor=flat, train=SMALL[0], held_out=SMALL[1], num_images=600, chosen=[Choice("cas", None)], resamples=20
    )


def real_rows(first, count):
    batch = real_batch(SMALL[0], first, count)
    return batch["image"], batch["label"]


def test_cas_of_training_images_is_that_of_a_judge_trained_on_them(evaluator):
    """The same network, training and test: only the number that the images are drawn by differs."""
    judge = train_or_load(*SMALL, None)
    whole = classifier_test(SMALL[1], print).accuracy_after(SMALL[0].images_NCHW, SMALL[0].labels_N)
    assert whole == judge.accuracy
    score = evaluator.score(real_rows)
    assert score.metrics == score.real  # both are the first 600 training images
    assert score.metrics["cas"] == pytest.approx(judge.accuracy, abs=0.05)
    assert score.protocol["cas"] == {"split": "held_out", "num_images": 360, "classifier": "that of the judge"}
    assert score.intervals == {}  # it would train 20 more classifiers


def test_cas_falls_for_mixed_classes_and_for_noise(evaluator):
    def mixed(first, count):
        images, labels = real_rows(first, count)
        return images, torch.where(torch.arange(first, first + count) % 2 == 0, labels, (labels + 1) % 10)

    def noise(first, count):
        images = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(first)) * 2 - 1
        return images, torch.arange(first, first + count) % 10

    real = evaluator.score(real_rows).metrics["cas"]
    assert evaluator.score(noise).metrics["cas"] < 0.3 < evaluator.score(mixed).metrics["cas"] < real - 0.1


def test_cas_of_images_without_labels_is_left_out(evaluator):
    assert evaluator.score(lambda first, count: (real_rows(first, count)[0], None)).metrics == {}


def test_a_run_has_a_cas_if_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(classifier, "STEPS", 10)
    words = ["data.size=8", "model.width=4", "train.batch=8", "train.kimg=0.008", "every.sample_kimg=0"]
    words += ["every.score_kimg=0.008", "evaluation.num_images=60", "writers=[jsonl]", "evaluation.metrics=[fd, cas]"]
    assert main(["train", "digits", *words, "--out", str(tmp_path / "run")]) == 0
    score = json.loads((tmp_path / "run" / "score.json").read_text())
    assert 0 <= score["cas"] <= 1 and 0 <= score["real"]["cas"] <= 1
    assert score["directions"]["cas"] == 1


def test_cas_of_data_without_classes_is_refused():
    with pytest.raises(ConfigError, match="cas needs classes, which the data does not have; leave it out"):
        choose_metrics([Choice("cas", None)], frozenset({Needs.FEATURES, Needs.IMAGES}))
