"""What is said while a judge is trained and before its first score, and a stop that ends the training."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from paragan import build
from paragan.build.evaluation import extractor_context, scorer
from paragan.config import read_recipe
from paragan.core.interrupt import StopRequested
from paragan.datasets import digits
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.extractor_fit import accuracy_warning
from paragan.features.base import classifier as classifier
from paragan.features.base.extractor import FeatureExtractor
from paragan.features.judge import Options, prepare, train_or_load


@pytest.fixture(scope="module")
def small():
    """The digits at 8 pixels: (train, held out)."""
    return tuple(digits.source(digits.Options(8), split) for split in ("train", "held_out"))


@pytest.mark.parametrize(
    ("symmetric", "names", "warning"),
    [
        (
            True,
            (),
            r"means little for these images: without classes, .* right on 25.0% of held-out images \(25% by chance\)",
        ),
        (
            True,
            tuple("abcdefghij"),
            r"the classifier trained on your images is right on \d+.\d% of held-out images, so its scores are rough; ",
        ),
        (False, tuple("abcdefghij"), None),
    ],
)
def test_scorer_inaccurate_judge_warns_once(small, tmp_path, monkeypatch, symmetric, names, warning):
    """Symmetric: images of one shade, so that all turns look the same and few classes can be told apart."""
    said, parts = [], []
    # where there is nothing to learn, nothing is learnt in few steps
    monkeypatch.setattr(classifier, "STEPS", 20 if symmetric else 250)
    for source in small:
        x, y = source.images_NCHW, source.labels_N
        if symmetric:
            x = x[:200] * 0 + torch.arange(200, dtype=torch.uint8).view(-1, 1, 1, 1)
            y = y[:200]
        parts.append(InMemorySource(x, y if names else None, names, "plain"))
    config = read_recipe("digits", ["data.size=8", "evaluation.num_images=64", "model.width=4"])
    trainer = build.trainer(config, tmp_path, said.append, lambda: False)
    data = build.Data(train=parts[0], held_out=parts[1])
    context = extractor_context(data, tmp_path, said.append, torch.device("cpu"))
    score = scorer(config, data, trainer.prior, context)
    assert said == []
    for _ in range(2):
        score(trainer.players["g"], trainer.prior)
    assert re.match(r"score     training a classifier on (200|1,437) of your images, .*: about \d+ s, once", said[0])
    warnings = [line for line in said if line.startswith("warning:")]
    assert len(warnings) == (warning is not None)
    assert warning is None or re.match(f"warning: score: {warning}", warnings[0])


@pytest.mark.parametrize(("step_s", "left"), [(0.02, "10 s"), (0.25, "124 s"), (3.0, "1482 s")])
def test_judge_says_once_why_training_waits_and_for_how_long(small, tmp_path, monkeypatch, step_s, left):
    now_s = 0.0

    def steps_of_a_slow_machine(train, held_out, folder, *, progress, **rest):
        nonlocal now_s
        for step in range(20):
            now_s += 5 if step < 2 else step_s  # the first steps load kernels
            progress(step)
        return FeatureExtractor(name="judge", network=nn.Identity(), shape=train.shape, num_classes=10, sha256="")

    monkeypatch.setattr("paragan.features.judge.train_or_load", steps_of_a_slow_machine)
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    said = []
    data = build.Data(train=small[0], held_out=small[1])
    context = extractor_context(data, tmp_path, said.append, torch.device("cpu"))
    judge = prepare(Options(), context)
    assert judge() is judge()
    estimates = [line for line in said if "training a classifier on 1,437 of your images" in line]
    assert len(estimates) == 1
    assert f"about {left}, once" in estimates[0]
    assert "evaluation.mode=background" in estimates[0]


@pytest.mark.parametrize(("accuracy", "warns"), [(None, False), (0.95, False), (0.9499, True)])
def test_accuracy_warning_starts_below_95_percent(accuracy, warns):
    extractor = FeatureExtractor(name="mnist", network=nn.Identity(), shape=(1, 28, 28), num_classes=10, sha256="")
    assert (accuracy_warning(extractor, accuracy, num_real=10) is not None) == warns


@pytest.mark.parametrize("num_held_out", [1, 3, 100])
def test_warning_names_the_values_of_real_images_only_where_the_score_has_them(
    small, tmp_path, monkeypatch, num_held_out
):
    monkeypatch.setattr(classifier, "STEPS", 30)
    said = []
    names = tuple("abcdefghij")
    (x, y), (held_x, held_y) = ((source.images_NCHW, source.labels_N) for source in small)
    train = InMemorySource(x[:300], y[:300], names, "few")
    held_x, held_y = held_x[:num_held_out], (held_y[:num_held_out] + 1) % 10  # wrong, so that the judge is
    held_out = InMemorySource(held_x, held_y, names, "few")
    config = read_recipe("digits", ["data.size=8", "evaluation.num_images=64", "model.width=4"])
    trainer = build.trainer(config, tmp_path, said.append, lambda: False)
    context = extractor_context(build.Data(train=train, held_out=held_out), tmp_path, said.append, torch.device("cpu"))
    context = replace(context, train=train, held_out=held_out)
    score = scorer(config, build.Data(train=train, held_out=held_out), trainer.prior, context)(
        trainer.players["g"], trainer.prior
    )
    (warning,) = [line for line in said if line.startswith("warning: score: the classifier ")]
    assert ("in brackets" in warning) == bool(score.real)
    assert bool(score.real) == (num_held_out > 3)


def test_scorer_stop_during_judge_training_writes_nothing(small, tmp_path):
    steps = []

    def progress(count):
        steps.append(count)
        if count == 3:
            raise StopRequested

    with pytest.raises(StopRequested):
        train_or_load(*small, tmp_path / "judge", progress=progress)
    assert steps == [0, 1, 2, 3]
    assert not (tmp_path / "judge").exists()
    assert torch.is_grad_enabled()
