"""Features that cannot be compared are refused with a reason; copied training images are found out."""

import json

import pytest
import torch
from torch import nn

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.core.option_types import Choice
from paragan.datasets import digits
from paragan.evaluation.evaluator import Evaluator
from paragan.features.base.extractor import FeatureExtractor, real_batch

SMALL = tuple(digits.source(digits.Options(8), split) for split in ("train", "held_out"))
TINY = ["data.size=8", "train.batch=8", "train.kimg=0.008", "every.sample_kimg=0", "every.score_kimg=0.008"]
TINY += ["evaluation.num_images=300", "evaluation.resamples=0", "writers=[jsonl]"]
COPIER = '''"""A generator that repeats training images, with noise that is hardly visible."""

import torch
from paragan.core.outputs import DiscriminatorOutput
from paragan.datasets import digits
from torch import nn


class Generator(nn.Module):
    latent, num_classes = 64, 0

    def __init__(self, options, shape, num_classes):
        super().__init__()
        images = digits.source(digits.Options(8), "train").images_NCHW
        self.register_buffer("images", images / 127.5 - 1)
        self.scale = nn.Parameter(torch.full((), 0.02))

    def forward(self, z):
        rows = (z[:, 0] * 1e5).long().abs() % len(self.images)
        return (self.images[rows] + self.scale * z.view(-1, 1, 8, 8)).clamp(-1, 1)


class Discriminator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.last = nn.Linear(64, 1)

    def forward(self, x):
        return DiscriminatorOutput(self.last(x.flatten(1)).squeeze(1), x.flatten(1))
'''


class Features(nn.Module):
    """A function of the flat pixels as a network."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x.flatten(1))


def score_by(function, num_images=300, dtype=torch.float32):
    extractor = FeatureExtractor(
        name="mine", network=Features(function), shape=(1, 8, 8), num_classes=None, sha256="", dtype=dtype
    )
    evaluator = Evaluator(
        extractor=extractor, train=SMALL[0], held_out=SMALL[1], num_images=num_images, chosen=[Choice("fd", None)]
    )
    return evaluator.score(lambda first, count: (real_batch(SMALL[0], first, count)["image"], None))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.flatten(), r"features of shape \(19200,\) for 300 images, not \(300, F\); return one row"),
        (lambda x: x.view(-1, 16), r"features of shape \(1200, 16\) for 300 images"),
        (lambda x: x.mean(0, keepdim=True), r"features of shape \(1, 64\) for 300 images"),
        (lambda x: x.log(), r"mine returns features that are not finite; use evaluation.dtype=float32, or another"),
        (
            lambda x: torch.ones_like(x),
            r"mine returns equal features for all real images: the images are equal, or it was trained on others",
        ),
    ],
    ids=["flattened", "rows-of-tokens", "averaged", "nan", "constant"],
)
def test_features_that_do_not_compare_are_refused_with_a_reason(function, message):
    with pytest.raises(ConfigError, match=rf"evaluation\.features: .*{message}"):
        score_by(function)


def test_features_of_too_few_images_are_refused():
    with pytest.raises(ConfigError, match=r"evaluation\.num_images=1 is too few for fd; use at least 2"):
        score_by(lambda x: x, num_images=1)
    assert score_by(lambda x: x, num_images=2).metrics["fd[mine]"] == pytest.approx(0, abs=1e-6)


def test_generator_that_copies_training_images_is_found_by_memorisation(tmp_path, monkeypatch, quick_judge):
    """A run of real digits: its images are near-copies, and fd alone calls them better than held-out ones."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copier.py").write_text(COPIER)
    (tmp_path / "copier.yaml").write_text(
        "data: {name: digits, size: 8}\nmodel: copier.py\nloss: hinge\ng: {optimizer: {name: Adam, lr: 1.0e-6}}\n"
    )
    words = [*TINY, "evaluation.metrics=[fd, memorisation]"]
    assert main(["train", "copier.yaml", *words, "--out", "run"]) == 0
    score = json.loads((tmp_path / "run" / "score.json").read_text())
    assert score["memorisation[judge]"] > 0.9
    assert score["real"]["memorisation[judge]"] == pytest.approx(0.5, abs=0.05)
    assert score["fd[judge]"] < 2 * score["real"]["fd[judge]"]
