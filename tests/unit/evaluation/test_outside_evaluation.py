"""A metric and a feature extractor of outside code: one file each, named by a dotted path."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import save_file

from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.evaluation import folder_scores

SPREAD = '''"""Mean distance of generated features to their mean; half of it above a limit."""

from dataclasses import dataclass, replace

import paragan as pg


@dataclass(frozen=True)
class Options:
    limit: float = 1e9


@dataclass(frozen=True)
class Metric(pg.Metric):
    name = "spread"
    direction = pg.Direction.HIGHER
    note = "Spread of the features."
    limit: float
    total: float = 0.0
    count: int = 0

    @classmethod
    def from_reference(cls, real, options=None):
        return cls(options.limit)

    def update(self, samples):
        total = float(samples.features_BF.double().std(0).sum())
        return replace(self, total=self.total + total, count=self.count + 1)

    def merge(self, other):
        return replace(self, total=self.total + other.total, count=self.count + other.count)

    def compute(self):
        return min(self.limit, self.total / self.count)
'''
PIXELS = '''"""A linear map of the pixels, without logits."""

from dataclasses import dataclass
from pathlib import Path

import torch

import paragan as pg
from paragan.core.option_types import FileExtractorOptions


@dataclass(frozen=True)
class Options(FileExtractorOptions):
    width: int = 3


def prepare(options, context):
    network, sha256 = pg.build_with_weights(
        lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, options.width)),
        Path(options.weights),
        options.sha256,
    )
    return pg.FeatureExtractor(
        name=context.name, network=network, shape=(1, 8, 8), num_classes=None, sha256=sha256,
        **context.call_settings(options),
    )
'''
WORDS = ["data.size=8", "model.width=4", "train.batch=8", "train.kimg=0.032", "every.sample_kimg=0"]
WORDS += ["every.score_kimg=0.016", "evaluation.num_images=64", "writers=[jsonl]"]


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A package with one file of each, and the weights of the extractor; the working directory is its parent."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "__init__.py").touch()
    (tmp_path / "scratch" / "spread.py").write_text(SPREAD)
    (tmp_path / "scratch" / "pixels.py").write_text(PIXELS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    weights = {"1.weight": torch.randn(3, 64, generator=generator), "1.bias": torch.zeros(3)}
    save_file(weights, tmp_path / "pixels.safetensors")
    return tmp_path


def features(folder, sha256):
    return f"evaluation.features={{name: scratch.pixels, weights: {folder}/pixels.safetensors, sha256: {sha256}}}"


def sha256_of(folder):
    return hashlib.sha256((folder / "pixels.safetensors").read_bytes()).hexdigest()


def scores_of(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "score"]


def test_a_run_is_scored_by_outside_metric_and_extractor(outside, capfd):
    words = [*WORDS, features(outside, sha256_of(outside)), "evaluation.metrics=[scratch.spread, fd]"]
    assert main(["train", "digits", *words, "--out", "run"]) == 0
    scores = scores_of(outside / "run")
    assert [set(score) & {"spread", "fd[pixels]", "coverage"} for score in scores] == [{"spread", "fd[pixels]"}] * 3
    best = json.loads((outside / "run" / "best" / "score.json").read_text())
    assert best["metric"] == "spread"
    assert best["value"] == max(score["spread"] for score in scores if score["step"])  # higher is better
    assert best["protocol"]["extractor_sha256"] == sha256_of(outside)
    assert best["protocol"]["spread"] == {"split": "train", "num_images": 64, "limit": 1e9}
    capfd.readouterr()
    assert main(["eval", "run"]) == 2
    assert "pass --trust" in capfd.readouterr().err
    assert main(["eval", "run", "--trust"]) == 0
    assert "spread" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ('    name = "spread"\n', "Metric.name"),
        ("    direction = pg.Direction.HIGHER\n", "Metric.direction"),
        ("    def compute(self):\n", "Metric.compute"),
    ],
)
def test_an_outside_metric_that_lacks_something_is_refused_with_its_name(outside, capfd, line, missing):
    path = outside / "scratch" / "lacking.py"
    path.write_text(SPREAD.replace(line, "" if "=" in line else "    def other(self):\n"))
    words = [*WORDS, features(outside, "null"), "evaluation.metrics=[scratch.lacking]"]
    assert main(["train", "digits", *words, "--out", "run"]) == 2
    refused = f"metric 'scratch.lacking' does not define {missing}; add what is missing to {path}"
    assert refused in capfd.readouterr().err


def test_an_outside_metric_needs_no_note(outside):
    (outside / "scratch" / "plain.py").write_text(SPREAD.replace('    note = "Spread of the features."\n', ""))
    words = [*WORDS, features(outside, sha256_of(outside)), "evaluation.metrics=[scratch.plain]"]
    assert main(["train", "digits", *words, "--out", "run"]) == 0
    assert scores_of(outside / "run")[-1]["spread"] > 0


PENALTY = """
import paragan as pg

class Penalty(pg.Penalty):
    name = "small"
    side = pg.Side.D

    def __init__(self, options):
        pass

    def __call__(self, context):
        return context.outputs.real.logits_B.square()
"""


@pytest.mark.parametrize(
    ("line", "missing"),
    [('name = "small"', "Penalty.name"), ("side = pg.Side.D", "Penalty.side"), ("def __call__", "Penalty.__call__")],
)
def test_an_outside_penalty_that_lacks_something_is_refused_with_its_name(outside, capfd, line, missing):
    (outside / "scratch" / "small.py").write_text(PENALTY.replace(line, "pass" if "=" in line else "def other"))
    words = [*WORDS, "evaluation.features=null", "penalties=[scratch.small]"]
    assert main(["train", "digits", *words, "--out", "run"]) == 2
    assert f"penalty 'scratch.small' does not define {missing}; add what is missing" in capfd.readouterr().err


def test_options_of_an_outside_metric_are_checked_and_passed_on(outside):
    words = ["evaluation.metrics=[{name: scratch.spread, limit: 0.5}]", features(outside, "null")]
    config = read_recipe("digits", [*WORDS, *words])
    assert config.evaluation.metrics[0].options.limit == 0.5
    score = build.trainer(config, outside / "run", print, lambda: False).compute_score()
    assert score.metrics == {"spread": 0.5}
    with pytest.raises(ConfigError, match=r"limits"):
        read_recipe("digits", ["evaluation.metrics=[{name: scratch.spread, limits: 1}]"])


def test_other_weights_of_an_outside_extractor_are_refused_before_anything_is_written(outside, capfd):
    assert main(["train", "digits", *WORDS, features(outside, "0" * 64), "--out", "run"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"its sha256 is {sha256_of(outside)}, not evaluation.features.sha256=0000" in line
    assert not (outside / "run").exists()


def test_a_metric_that_needs_logits_refuses_an_extractor_without(outside, capfd):
    words = [features(outside, "null"), "evaluation.metrics=[label_accuracy]"]
    assert main(["train", "digits", *WORDS, *words, "--out", "run"]) == 2
    assert "label_accuracy needs a classifier of the data" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluation.metrics=[psnr]"], "evaluation.metrics: psnr needs pairs, which the data does not have"),
        (["evaluation.metrics=[]"], "evaluation.metrics is empty; name one"),
        (["evaluation.metrics=[fd, fd]"], "evaluation.metrics has fd twice"),
        (["evaluation.num_images=5"], "evaluation.num_images=5 is too few for coverage; use at least 6"),
    ],
)
def test_metrics_and_extractors_that_do_not_apply_are_refused(words, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", *words, "--out", "run"]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_metrics_that_are_named_are_the_only_ones(tmp_path, quick_judge):
    words = ["evaluation.metrics=[coverage, fd]", "evaluation.features=judge", "evaluation.batch_size=100"]
    trainer = build.trainer(read_recipe("digits", [*WORDS, *words]), tmp_path / "run", print, lambda: False)
    score = trainer.compute_score()
    assert (list(score.metrics), score.decisive) == (["coverage", "fd[judge]"], "coverage")
    assert list(score.real) == ["coverage", "fd[judge]"]


@pytest.mark.parametrize("body", ["raise KeyError('x')", "return None", "return float('nan')", "return 'good'"])
def test_a_metric_of_a_user_that_fails_takes_no_other_value_down(tmp_path, body):
    metric = tmp_path / "broken.py"
    metric.write_text(
        "from paragan.metrics.kid import Metric as Base\n\n\n"
        f"class Metric(Base):\n    name = 'broken'\n\n    def compute(self):\n        {body}\n"
    )
    generated, real = (folder_scores._image_set(name, torch.randn(40, 4), {}) for name in ("generated", "real"))
    values = folder_scores.compare(generated, real, [str(metric), "fd"])
    assert isinstance(values[str(metric)], str) and isinstance(values["fd"], float)
