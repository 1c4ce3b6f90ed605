"""Scores: real images score best, collapse and noise show, and the protocol tells what was compared with what."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from paragan.core import registry
from paragan.core.dist import ALONE
from paragan.core.errors import ConfigError, DivergedError
from paragan.core.metric import SampleFeatures
from paragan.core.types import Rows
from paragan.datasets import digits, mnist
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.generated_features import compute_features, row_blocks, sample_generator
from paragan.features.base.extractor import FeatureExtractor
from paragan.features.judge import train_or_load
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import sampling_network
from paragan.loading.normalise import normalise
from paragan.loading.order import Order
from tests.prepared_extractors import prepared


@pytest.fixture(scope="module")
def small():
    return tuple(digits.source(digits.Options(8), split) for split in ("train", "held_out"))


@pytest.fixture(scope="module")
def judge(small):
    return train_or_load(*small, None)


@pytest.fixture(scope="module")
def evaluator(small, judge):
    return Evaluator(extractor=judge, train=small[0], held_out=small[1], num_images=1000)


def real_rows(source, skip=0):
    """In the order of the reference, after so many."""

    def generate(first, count):
        x, y = source.fetch(Order(len(source), 0).at(np.arange(skip + first, skip + first + count))).values()
        return normalise(x), y

    return generate


def noise(first, count):
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(first)) * 2 - 1, labels(first, count)


def labels(first, count):
    return torch.arange(first, first + count) % 10


@pytest.mark.parametrize(
    ("side", "mode", "most"), [(8, "eval", 250), (128, "eval", 62), (1024, "eval", 4), (1024, "train-stats", 250)]
)
def test_evaluator_large_images_use_small_batches(side, mode, most, monkeypatch):
    """Of 128 px, 250 with their attention take 8 GB."""
    asked = []

    def generate(first, count):
        asked.append((first, count))
        return torch.zeros(count, 1, 1, 1), None

    shape = (1, side, side)
    source = SimpleNamespace(shape=shape, class_names=())
    judge = FeatureExtractor(name="flat", network=nn.Flatten(), shape=(1, 1, 1), num_classes=None, sha256="")
    monkeypatch.setattr(FeatureExtractor, "accepts", lambda self, shape: True)
    size = Evaluator(extractor=judge, train=source, held_out=source, num_images=510, mode=mode)._block_size
    judged = compute_features(generate, judge, row_blocks(510, size), ALONE)
    assert len(judged.features_BF) == 510 == sum(count for _, count in asked)
    assert asked[0] == (0, most) and asked[1][0] == most and max(count for _, count in asked) == most


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_score_of_one_process_ends_at_the_first_block_that_fails(failing):
    asked = []

    def compute(x, labels):
        if len(asked) == failing:
            raise ValueError("features are not finite")
        return SampleFeatures(features_BF=torch.zeros(len(x), 3))

    def generate(first, count):
        asked.append(first)
        return torch.zeros(count, 1, 8, 8), None

    with pytest.raises(ValueError, match="features are not finite"):
        compute_features(generate, SimpleNamespace(compute=compute), row_blocks(8, 2), ALONE)
    assert len(asked) == failing


@pytest.mark.parametrize(("fails", "num_collectives"), [("generator", 0), ("extractor", 1)])
def test_a_sharded_generator_that_fails_ends_before_the_next_collective(fails, num_collectives):
    """The other rank waits inside of the forward: a further collective of this one would be taken for its part."""
    collectives = []
    world = SimpleNamespace(rank=0, size=2, any=collectives.append, gather=lambda error: [error, None])

    def fail(part, result):
        if part == fails:
            raise ValueError("the reason")
        return result

    def generate(first, count):
        return fail("generator", (torch.zeros(count, 1, 8, 8), None))

    def compute(x, labels):
        return fail("extractor", SampleFeatures(features_BF=torch.zeros(len(x), 3)))

    with pytest.raises(ValueError if fails == "generator" else ConfigError, match="the reason"):
        compute_features(generate, SimpleNamespace(compute=compute), row_blocks(4, 2), world, is_sharded=True)
    assert len(collectives) == num_collectives


@pytest.mark.parametrize(("name", "is_sharded"), [("none", False), ("ddp", False), ("zero1", False), ("zero3", True)])
def test_a_player_says_whether_its_forward_has_collectives(name, is_sharded):
    strategy = registry.load_module("parallel", name).Strategy
    assert Player.is_sharded.fget(SimpleNamespace(strategy=strategy)) == is_sharded


def test_evaluator_real_images_have_the_best_score(evaluator, small):
    metrics = evaluator.score(real_rows(small[0])).metrics
    assert list(metrics) == ["fd[judge]", "label_accuracy", "class_variance_min", "class_variance_mean", "coverage"]
    assert metrics["fd[judge]"] == pytest.approx(0, abs=1e-6)  # the same images as the reference
    assert metrics["label_accuracy"] > 0.98
    assert metrics["class_variance_min"] == pytest.approx(1, abs=1e-6)
    assert metrics["class_variance_mean"] == pytest.approx(1, abs=1e-6)
    assert metrics["coverage"] > 0.9


def test_evaluator_noise_has_a_bad_score(evaluator):
    metrics = evaluator.score(noise).metrics
    assert metrics["fd[judge]"] > 10
    assert metrics["label_accuracy"] < 0.3
    assert metrics["coverage"] < 0.3


def test_evaluator_one_image_per_class_has_low_coverage(evaluator, small):
    x, y = small[0].fetch(np.arange(len(small[0]))).values()
    best = normalise(torch.stack([x[y == c][0] for c in range(10)]))
    metrics = evaluator.score(lambda first, count: (best[labels(first, count)], labels(first, count))).metrics
    assert metrics["label_accuracy"] >= 0.9
    assert metrics["class_variance_min"] < 0.01
    assert metrics["coverage"] < 0.3


def test_evaluator_labels_are_the_requested_ones(evaluator, small):
    def mislabelled(first, count):
        x, y = real_rows(small[0])(first, count)
        return x, (y + 1) % 10

    assert evaluator.score(mislabelled).metrics["label_accuracy"] < 0.02


def test_evaluator_without_classes_computes_distance_and_coverage(evaluator, small):
    generate = real_rows(small[0])
    assert list(evaluator.score(lambda *rows: (generate(*rows)[0], None)).metrics) == ["fd[judge]", "coverage"]


def test_evaluator_protocol_has_all_settings(evaluator, judge, small):
    score = evaluator.score(real_rows(small[0]))
    assert score.num_images == 1000
    assert score.protocol["extractor"] == "judge"
    assert score.protocol["extractor_accuracy"] == judge.accuracy
    assert score.protocol["extractor_sha256"] == judge.sha256
    assert score.protocol["reference"] == {"split": "train", "num_images": 1000}
    assert score.protocol["coverage"] == {"split": "held_out", "num_images": 360, "k": 5}
    assert json.loads(json.dumps(score.protocol)) == score.protocol


def test_evaluator_real_values_are_of_held_out_images(evaluator, small):
    """360 held-out images scored like generated ones, covered by training images."""
    score = evaluator.score(real_rows(small[0]))
    as_generated = (
        Evaluator(extractor=evaluator.extractor, train=small[0], held_out=small[1], num_images=360)
        .score(real_rows(small[1]))
        .metrics
    )
    assert list(score.real) == list(score.metrics)
    assert score.real["label_accuracy"] == as_generated["label_accuracy"] == evaluator.extractor.accuracy
    assert score.real["fd[judge]"] > 0.1 and 0.8 < score.real["coverage"] < 1
    assert score.protocol["real"] == {"split": "held_out", "num_images": 360}
    assert score.values["real"] == score.real


def test_evaluator_coverage_uses_as_many_images_as_held_out(small, judge):
    """The first 360 are noise, the rest real: those do not count."""

    def generate(first, count):
        x, y = noise(first, count)
        late = torch.arange(first, first + count) >= 360
        real = small[1].fetch(np.arange(first, first + count) % 360)["image"]
        return torch.where(late[:, None, None, None], normalise(real), x), y

    assert (
        Evaluator(extractor=judge, train=small[0], held_out=small[1], num_images=1000)
        .score(generate)
        .metrics["coverage"]
        < 0.3
    )


def test_evaluator_other_shape_or_classes_is_refused(judge, small):
    large = digits.source(digits.Options(16), "train")
    with pytest.raises(
        ConfigError, match="=judge expects images of 1x8x8 in 10 classes, but the data has 1x16x16 in 10 classes"
    ):
        Evaluator(extractor=judge, train=large, held_out=large, num_images=100)
    fewer = InMemorySource(small[0].images_NCHW, small[0].labels_N % 2, ("even", "odd"))
    with pytest.raises(ConfigError, match="in 2 classes"):
        Evaluator(extractor=judge, train=fewer, held_out=fewer, num_images=100)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_evaluator_images_not_finite_is_refused(evaluator, value):
    with pytest.raises(DivergedError, match="diverged"):
        evaluator.score(lambda first, count: (torch.full((count, 1, 8, 8), value), None))


class Picture(nn.Module):
    """Latents as 8x8 images; shows its class in one corner."""

    def forward(self, z_BZ, y_B):
        x = z_BZ.view(-1, 1, 8, 8).tanh()
        x[:, 0, 0, 0] = y_B / 10
        return x


def test_sample_generator_latents_depend_on_position():
    player, prior = SimpleNamespace(net=Picture(), ema=None), Prior(seed=3, latent=64, num_classes=10)
    generate = sample_generator(sampling_network(player), prior, total=30)
    x, y = generate(20, 10)
    z, asked = prior.draw("score", Rows(step=0, first=0, count=30, total=30))
    assert torch.equal(x, Picture()(z, asked)[20:])
    assert torch.equal(y, asked[20:])


@pytest.mark.slow
def test_evaluator_mnist_distances_match_reference(data_root):
    """With the packaged CNN, 10,000 against 10,000: real 0.0156, uniform noise 59.3."""
    options = mnist.Options(str(data_root / "mnist"))
    train, held_out = (mnist.source(options, split) for split in ("train", "held_out"))
    evaluator = Evaluator(extractor=prepared("mnist", train), train=train, held_out=held_out, num_images=10_000)

    def uniform(first, count):
        return torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(first)) * 2 - 1, None

    real = evaluator.score(real_rows(train, skip=10_000))
    assert real.metrics["fd[mnist]"] == pytest.approx(0.0156, abs=0.003)
    assert real.protocol["extractor_accuracy"] == pytest.approx(0.9964)
    assert evaluator.score(uniform).metrics["fd[mnist]"] == pytest.approx(59.26, rel=0.01)


def test_evaluator_few_held_out_images_has_no_coverage(small, judge):
    few = InMemorySource(small[1].images_NCHW[:4], small[1].labels_N[:4], small[1].class_names)
    score = Evaluator(extractor=judge, train=small[0], held_out=few, num_images=100).score(noise)
    assert "coverage" not in score.metrics
    assert score.metrics["fd[judge]"] > 10
    assert score.protocol["coverage"]["num_images"] == score.protocol["real"]["num_images"] == 0
    assert score.real == {} and "real" not in score.values
