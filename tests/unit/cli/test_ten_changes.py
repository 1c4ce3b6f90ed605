"""Ten changes to the library, each one file outside the tree that the config names and no list does.

The files are in `tests/scratch`; the strategy has its test in tests/distributed/test_outside_strategy.py.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import paragan as pg
from paragan.checkpoint.reader import read_checkpoint
from paragan.cli.main import main
from tests.processes import ROOT, environment
from tests.tiny_run import newest

SCRATCH = ROOT / "tests" / "scratch"
SMALL = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=8", "train.kimg=0.032"),
    *("every.sample_kimg=0", "every.save_kimg=0", "every.score_kimg=0", "every.log_steps=1"),
)
NO_SCORES = "evaluation.features=null"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Train in a folder that has the scratch package and its recipe; return the run folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SCRATCH))
    shutil.copy(SCRATCH / "stripes.yaml", tmp_path)

    def train(recipe: str, *words: str) -> Path:
        assert main(["train", recipe, *words, "--out", "run"]) == 0
        return tmp_path / "run"

    return train


def test_loss_in_one_file_trains(run):
    values = pg.Run(run("digits", *SMALL, NO_SCORES, "loss=scratchpkg.bounded_loss")).history[-1]
    floor = 50.0  # of this loss alone
    assert floor <= values["d/loss/adversarial"] < 2 * floor
    assert floor <= values["g/loss/adversarial"] < 2 * floor


def test_model_in_one_file_trains(run):
    words = [word for word in SMALL if not word.startswith("model")]
    folder = run("digits", *words, NO_SCORES, "model={name: scratchpkg.two_layers, hidden: 6}")
    assert read_checkpoint(newest(folder)).groups["g"]["net/net.0.weight"].shape == (6, 4)


def test_data_set_in_one_file_trains(run):
    words = [word for word in SMALL if not word.startswith("data")]
    folder = run("digits", *words, NO_SCORES, "data={name: scratchpkg.stripes, size: 8}")
    assert pg.Run(folder).records("start")[0]["data"]["images"] == 64


def test_penalty_in_one_file_trains(run):
    folder = run("digits", *SMALL, NO_SCORES, "penalties=[{name: scratchpkg.logit_norm, weight: 2}]")
    assert pg.Run(folder).history[-1]["d/loss/logit_norm"] > 0


def test_writer_in_one_file_receives_every_event(run):
    folder = run("digits", *SMALL, NO_SCORES, "writers=[jsonl, scratchpkg.counting]")
    counts = dict(line.split() for line in (folder / "events.txt").read_text().splitlines())
    assert int(counts["step"]) == 4 and {"start", "checkpoint", "end"} <= counts.keys()


def test_recipe_in_one_file_is_listed_and_trains(run, capsys):
    assert main(["list", "recipes"]) == 0
    assert "stripes.yaml" in capsys.readouterr().out
    assert pg.Run(run("stripes.yaml")).history[-1]["step"] == 4


@pytest.mark.slow
def test_scheme_with_roles_in_one_file_trains_on_two_ranks(tmp_path):
    paths = environment(PYTHONPATH=f"{ROOT / 'src'}:{SCRATCH}")
    words = ["train", "digits", *SMALL, NO_SCORES, "scheme=scratchpkg.separate_ranks", "devices=2", "--out", "run"]
    command = [sys.executable, "-m", "paragan", *words]
    done = subprocess.run(command, env=paths, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = pg.Run(tmp_path / "run")
    values = ended.history[-1]
    assert values["step"] == 4 and {"g/loss/adversarial", "d/loss/adversarial"} <= values.keys()
    assert ended.records("delays")  # recorded only where players are on separate ranks
