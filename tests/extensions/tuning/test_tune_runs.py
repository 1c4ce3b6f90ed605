"""Trials of `tune` that train: a process that is killed, and a program's own networks."""

import csv
import json
import subprocess
import sys
import time

import pytest
import torch

import paragan as pg
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.config.sections import ANY
from paragan.features.base import classifier
from tests.laws.poster_nets import Discriminator, Generator, PosterDiscriminator, PosterGenerator
from tests.processes import environment, running

TINY = (
    "data.size=8", "train.batch=16", "train.threads=1", "every.sample_kimg=0", "evaluation.num_images=64",
    "evaluation.metrics=fd", "evaluation.resamples=0", "writers=[jsonl]",
)  # fmt: skip
WORDS = ["digits", *TINY, "model.width=4", "model.latent=8", "g.optimizer.lr=log:1e-4..1e-2", "--trials", "3"]
SAVES = ["every.save_kimg=0.16", "every.score_kimg=1.2", "--kimg", "2.4"]


def rows(folder):
    with open(folder / "trials.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def lines(folder, kind):
    text = (folder / "metrics.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_study_whose_process_is_killed_resumes_the_trial_and_reaches_its_number(tmp_path, capsys):
    command = ["tune", *WORDS, *SAVES, "--out", str(tmp_path / "study")]
    second = tmp_path / "study" / "trials" / "1"
    with running([sys.executable, "-m", "paragan", *command], env=environment(), stdout=subprocess.DEVNULL) as process:
        while not list(second.glob("checkpoints/step-*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
    assert not (second / "exit.json").exists()  # it was killed on the way
    assert main(command) == 0
    found = rows(tmp_path / "study")
    assert [row["trial"] for row in found] == ["0", "1", "2"]
    assert {row["state"] for row in found} <= {"complete", "pruned"}
    starts = lines(second, "start")
    assert len(starts) == 2 and starts[1]["resumed"]
    rates = [float(row["g.optimizer.lr"]) for row in found]
    for number, rate in enumerate(rates):
        folder = tmp_path / "study" / "trials" / str(number)
        assert read_recipe(str(folder / "config.yaml")).g.optimizer.lr == rate
        assert lines(folder, "score")[-1]["fd[judge]"] == float(found[number]["fd"])
    runs = [str(tmp_path / "study" / "trials" / str(number)) for number in range(3)]
    assert main(["compare", *runs, "--out", str(tmp_path / "compare.html")]) == 0
    assert "g.optimizer.lr" in capsys.readouterr().out


def test_program_is_tuned_before_its_first_step_and_keeps_the_values(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(classifier, "STEPS", 10)
    config = read_recipe("digits", [*TINY, "train.kimg=0.32", "every.save_kimg=0", "every.score_kimg=0"])

    def manager():
        torch.manual_seed(0)
        gan = pg.Estimator(PosterGenerator(Generator()), PosterDiscriminator(Discriminator()))
        ranges = {"g.optimizer.lr": "log:1e-4..1e-2", "loss": "hinge,nonsaturating"}
        return pg.ScalingManager(config, 16, 1, out=tmp_path / "run", tune=ranges, trials=2), gan

    scale_mgr, gan = manager()
    scale_mgr.train(gan)
    scale_mgr.save()
    scale_mgr.close()
    recorded = read_recipe(str(tmp_path / "run" / "config.yaml"), outside=ANY)
    trials = [tmp_path / "run-tune" / "trials" / str(number) for number in range(2)]
    scores = [lines(folder, "score")[-1]["fd[judge]"] for folder in trials]
    best = read_recipe(str(trials[scores.index(min(scores))] / "config.yaml"), outside=ANY)
    assert (recorded.g.optimizer.lr, recorded.loss.name) == (best.g.optimizer.lr, best.loss.name)
    assert {read_recipe(str(one / "config.yaml"), outside=ANY).train.kimg for one in trials} == {0.032}
    said = capsys.readouterr().out
    assert "trial 1 (2 of 2): fd " in said and "\ntune      g.optimizer.lr=" in said
    scale_mgr, gan = manager()
    scale_mgr.train(gan)
    assert scale_mgr.config.g.optimizer.lr == best.g.optimizer.lr and scale_mgr.trainer.clock.step == 2
    assert "trial" not in capsys.readouterr().out
    scale_mgr.close()


def test_ranges_of_a_program_are_refused_at_once(tmp_path):
    with pytest.raises(pg.ConfigError, match=r"g.optimizer.lr=2..1 is empty"):
        pg.ScalingManager(read_recipe("digits", TINY), 16, 1, out=tmp_path / "run", tune={"g.optimizer.lr": "2..1"})
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick_judge")
def test_a_run_and_a_study_do_not_share_a_folder(tmp_path, capsys):
    pytest.importorskip("optuna")
    run, study = str(tmp_path / "run"), str(tmp_path / "study")
    train = ["train", *WORDS[:-3], "train.kimg=0.032"]
    assert main([*train, "--out", run]) == 0
    assert main(["tune", *WORDS, "--kimg", "0.032", "--out", run]) == 2
    assert "holds a run, not a study" in capsys.readouterr().err
    assert main(["tune", *WORDS[:-1], "1", "--kimg", "0.032", "--out", study]) == 0
    assert main([*train, "--out", study]) == 2
    assert "holds a study of tune" in capsys.readouterr().err


def test_each_trial_ends_with_a_sheet(tmp_path, monkeypatch):
    monkeypatch.setattr(classifier, "STEPS", 10)
    out = tmp_path / "study"
    assert main(["tune", *WORDS, "every.sample_kimg=1", "every.save_kimg=0", "--kimg", "0.08", "--out", str(out)]) == 0
    for number in range(3):
        assert [line["step"] for line in lines(out / "trials" / str(number), "samples")] == [0, 5]
