"""A run of a config whose D is several: weights from the command line, augmentation, resume, report, refusals."""

import re

import pytest

import paragan as pg
from paragan.cli.main import main

NETS = """
import torch
from torch import nn

import paragan as pg


class Generator(nn.Module):
    latent = 4

    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))

    def forward(self, z, y=None):
        return self.layers(z)


class Patches(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride)
        self.last = nn.Conv2d(4, 1, 1)

    def forward(self, x, y=None):
        h = self.first(x).relu()
        return self.last(h), [h]


class Discriminator(pg.Discriminators):
    def __init__(self, options, shape, num_classes):
        super().__init__(fine=Patches(1), coarse=Patches(3))
"""
WORDS = (
    *("train", "digits", "model.name=several.py", "data.size=8", "train.batch=16", "every.sample_kimg=0"),
    *("evaluation.features=null", "every.save_kimg=0.032", "every.log_steps=1", "loss=least_squares"),
    *("penalties=[feature_matching_l1, r1]", "augment=ada", "adversarial.weights={coarse: 0.5}"),
    *("d.optimizer.groups=[{match: 'fine.*', lr: 1e-5}]", "--out", "run"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "several.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_records_resumes_and_reports_every_discriminator(folder):
    assert main([*WORDS, "train.kimg=0.032"]) == 0
    assert main([*WORDS, "train.kimg=0.064"]) == 0
    steps = pg.Run("run").history
    assert len(steps) == 4 and "d/lr[fine.*]" in steps[-1]
    for line in steps:
        for side in "dg":
            fine, coarse = (line[f"{side}/loss/adversarial/{name}"] for name in ("fine", "coarse"))
            assert line[f"{side}/loss/adversarial"] == pytest.approx(fine + 0.5 * coarse, rel=1e-4)
        assert {"d/real/fine", "d/fake/coarse", "d/sign", "g/loss/feature_matching_l1"} <= set(line)
    page = (folder / "run" / "report.html").read_text()
    for title in ("D's loss by discriminator", "Outputs by discriminator, real"):
        assert re.search(title.replace("'", "(&#39;|')"), page)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["adversarial.weights={corse: 1}"],
            "adversarial.weights: no discriminator is called 'corse'; choose from fine",
        ),
        (
            ["adversarial.weights={fine: -1}"],
            "adversarial.weights: must be a map of names, each a number >= 0, not {'fine': -1}",
        ),
        (["penalties=[lecam]"], "penalty lecam does not support several discriminators (fine, coarse); leave it out"),
        (
            ["grid.shape=1x2", "grid.batches=1", "penalties=[]", "augment=null"],
            "a grid does not support several discriminators (fine, coarse)",
        ),
    ],
    ids=["name", "weight", "penalty", "grid"],
)
def test_settings_that_do_not_fit_several_discriminators_are_one_line(folder, capsys, words, message):
    assert main([*WORDS, "train.kimg=0.032", *words]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if message in line]
    assert len(errors) == 1
