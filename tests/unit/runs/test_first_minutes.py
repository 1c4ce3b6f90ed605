"""What a new user meets first: a sheet before the classifier of the scores trains, and lines without private words."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg
from paragan.config import read_recipe
from paragan.core.files import create_subfolder
from paragan.core.interrupt import Interrupt
from paragan.engine.training_loop import TrainingLoop
from paragan.features import judge as judging
from paragan.features.base import classifier
from paragan.runs.run_request import RunRequest
from paragan.runs.train import train_run
from tests.unit.api.test_trainer_samples import Critic, Maker

SHORT = (
    *("train.kimg=0.032", "train.batch=16", "train.threads=1", "evaluation.num_images=40", "evaluation.resamples=0"),
    *("model.width=4", "model.latent=8", "writers=[images,jsonl,console]"),
)


def write_noise(folder: Path, classes: str) -> Path:
    """Write 60 images of noise, whose rotation cannot be learnt."""
    draw = np.random.default_rng(0)
    for number in range(60):
        of_class = create_subfolder(folder, classes[number % len(classes)]) if classes else folder
        of_class.mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (16, 16, 3), np.uint8)).save(of_class / f"{number}.png")
    return folder


@pytest.fixture
def sheets_before(monkeypatch, tmp_path):
    """The sheets of the run `run` when a classifier began to train; it trains for three steps."""
    sheets = []
    whole = judging.train_classifier
    monkeypatch.setattr(classifier, "STEPS", 8)

    def watched(*arguments):
        sheets.append(sorted(path.name for path in (tmp_path / "run" / "samples").glob("*.png")))
        return whole(*arguments)

    monkeypatch.setattr(judging, "train_classifier", watched)
    return sheets


def trained(out: Path, recipe: str, *words: str) -> list[dict]:
    config = read_recipe(recipe, [*SHORT, *words])
    assert train_run(RunRequest(config=config, name=recipe, out=out, has_commands=True), Interrupt()) == 0
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


GRID = ("grid.shape=1x2", "grid.batches=2", "scheme=synchronous", "penalties=[]")


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("own", ["data.size=16", "data.path=images"]),
        ("own", ["data.size=16", "data.path=flat", "every.score_kimg=0"]),
        ("digits", ["data.size=8", "augment=null"]),
        ("digits", ["data.size=8", "augment=null", *GRID]),
    ],
    ids=["classes", "no classes", "digits", "grid"],
)
def test_first_sheet_is_written_before_the_classifier_trains(tmp_path, monkeypatch, sheets_before, recipe, words):
    monkeypatch.chdir(tmp_path)
    write_noise(tmp_path / "images", "ab")
    write_noise(tmp_path / "flat", "")
    record = trained(tmp_path / "run", recipe, *words)
    assert [before[:1] for before in sheets_before] == [["step-0000000.png"]]
    kinds = [line["kind"] for line in record]
    assert kinds.index("samples") < kinds.index("score")


@pytest.mark.parametrize(("classes", "names"), [("ab", ["fd", "label_accuracy", "coverage"]), ("", ["fd", "coverage"])])
def test_score_line_has_coverage_and_no_private_words(tmp_path, sheets_before, capsys, classes, names):
    images = write_noise(tmp_path / "images", classes)
    record = trained(tmp_path / "run", "own", f"data.path={images}", "data.size=16")
    score = [line for line in record if line["kind"] == "score"][-1]
    assert {"fd[judge]", *names[1:]} <= score.keys()  # the record has all
    lines = capsys.readouterr().out.splitlines()
    scores = [line for line in lines if re.search(r"  ?fd \d", line)]
    assert len(scores) == 2  # untrained, and at the end
    for line in scores:
        number = r"[\d.e+-]+"
        values = "  ".join(rf"{name} {number} \(real {number}\)" for name in names)
        assert re.search(rf" {values}$", line)
    assert not [line for line in lines if re.search(r"judge|extractor|rotation|class_variance", line)]
    assert sum("training a classifier on" in line for line in lines) == 1


def test_images_without_direction_say_that_scores_mean_little(tmp_path, sheets_before, capsys):
    images = write_noise(tmp_path / "images", "")
    trained(tmp_path / "run", "own", f"data.path={images}", "data.size=16")
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: score")]
    assert "means little" in warning
    assert "a folder for each class" in warning


@pytest.mark.parametrize("stops", [False, True])
def test_run_of_a_program_ends_with_a_sheet(tmp_path, monkeypatch, stops):
    """Also one that Ctrl-C stops."""
    settings = {"data.size": 8, "augment": None, "evaluation.features": None, "train.kimg": 0.048, "train.batch": 16}
    if stops:
        monkeypatch.setattr(TrainingLoop, "_should_stop", lambda loop: loop.clock.step == 2)
    run = pg.train("digits", settings, out=tmp_path / "run")
    assert [line["step"] for line in run.records("samples")] == [0, 2 if stops else 3]
    assert run.is_finished != stops


@pytest.mark.parametrize("num_steps", [1, 3])
def test_run_of_a_trainer_ends_with_a_sheet(tmp_path, num_steps):
    settings = {"train.batch": 4, "train.kimg": 0.004 * num_steps, "evaluation.features": None}
    data = {"x": torch.zeros(20, 1, 8, 8)}
    run = pg.Trainer(Maker((1, 8, 8)), Critic((1, 8, 8)), data, settings=settings, out=tmp_path).run()
    assert [line["step"] for line in run.records("samples")] == [0, num_steps]
