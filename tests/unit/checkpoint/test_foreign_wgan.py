"""A WGAN-GP from elsewhere, with its usual settings, in a file next to its recipe, on labelled data."""

import json
import sys
from pathlib import Path

import pytest

import paragan as pg
from paragan.cli.main import main

NETS = """
from torch import nn


class Generator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.latent = 8
        self.net = nn.Sequential(
            nn.Linear(8, 64), nn.Unflatten(1, (4, 4, 4)), nn.BatchNorm2d(4), nn.ReLU(),
            nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x)
"""
RECIPE = """data: {name: digits, size: 8}
model: wgan.py
loss: wasserstein
penalties: [gradient_penalty]
g: {optimizer: {name: Adam, lr: 1e-4, arguments: {betas: [0, 0.9]}}}
d: {updates_per_step: 5, optimizer: {name: RMSprop, lr: 5e-5}}
train: {batch: 8, kimg: 0.08}
every: {sample_kimg: 0.08, score_kimg: 0}
evaluation: {features: null}
writers: [images, jsonl, console]
"""
UNCONDITIONAL = "self.latent, self.num_classes = 8, 0"


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Trains, and returns the exit code, what was said, and the record."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*words, nets=NETS):
        Path("wgan.py").write_text(nets)
        Path("wgan.yaml").write_text(RECIPE)
        capsys.readouterr()
        code = main(["train", "wgan.yaml", "--out", "run", *words])
        said = "".join(capsys.readouterr())
        record = Path("run/metrics.jsonl")
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
        return code, said, [json.loads(line) for line in lines]

    return run


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("d.optimizer.name=Adam", "d.optimizer.arguments.betas=[0, 0.9]"),
        ("penalties.1=consistency",),
        ("penalties.1=consistency", "penalties.1.fake_weight=10", "augment=diffaugment"),
    ],
    ids=["rmsprop", "adam", "consistency", "augmented"],
)
@pytest.mark.parametrize("cure", ["in the generator", "in the recipe"])
def test_usual_settings_train(train, words, cure):
    nets = NETS.replace("self.latent = 8", UNCONDITIONAL) if cure == "in the generator" else NETS
    code, said, record = train(*words, *(["data.labels=false"] if nets is NETS else []), nets=nets)
    assert code == 0, said
    assert "finished: step 2" in said and "warning:" not in said
    assert [line["rows"] for line in record if line["kind"] == "samples"] == [[], []]


def test_networks_without_labels_are_refused_before_anything_is_written(train):
    code, said, _ = train()
    assert code == 2 and said.count("\n") == 1
    assert said.startswith("model: Generator.forward(z) takes no labels, but the data has 10 classes (")
    assert "set self.num_classes = 0 in the Generator, or pass data.labels=false" in said
    assert not Path("run").exists()


@pytest.mark.usefixtures("quick_judge")
def test_a_generator_that_ignores_its_labels_is_scored_without_classes(train, capsys):
    ignoring = NETS.replace("forward(self, z)", "forward(self, z, y)").replace(
        "forward(self, x)", "forward(self, x, y)"
    )
    words = ("evaluation.features=judge", "evaluation.num_images=20", "every.score_kimg=0.08")
    code, said, record = train(*words, nets=ignoring)
    assert code == 0, said
    assert said.count("warning: the generator ignores its labels") == 1
    scores = [set(line) for line in record if line["kind"] == "score"]
    assert scores
    assert all("fd[judge]" in score for score in scores)
    assert not any(score & {"label_accuracy", "class_variance_min", "class_variance_mean"} for score in scores)
    assert [line["rows"] for line in record if line["kind"] == "samples"] == [[], []]
    assert record[0]["data"]["labels"] == "ignored by the generator"
    assert main(["sample", "run", "--classes", "--trust"]) == 2
    assert "--classes: this generator ignores its labels" in capsys.readouterr().err
    assert pg.load("run", trust=True).class_names == ()
