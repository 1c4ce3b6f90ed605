"""`benchmarks.cellular_mnist`: arms are equal but for what they say, everybody is chosen alike, sums are right."""

from __future__ import annotations

import copy
import json
import re
import shutil

import pytest
import torch

from benchmarks import (
    cellular_mnist as study,
    cellular_mnist_plots as plots,
    cellular_mnist_scores as scores,
    cellular_mnist_summary as summary,
)
from paragan import build
from paragan.build import grid
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.types import Side
from paragan.datasets import digits
from paragan.features.judge import train_or_load

pytestmark = pytest.mark.slow  # about 20 s

WORDS = (
    *(
        "train.threads=1",
        "train.batch=16",
        "data.size=8",
        "evaluation.num_images=64",
        "scheme={name: skipping, every: 2}",
    ),
    *("model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}", "penalties=[]", "evaluation.features=judge"),
    *("every.sample_kimg=0", "every.score_kimg=0", "g.ema=null"),
)
GRID = ("grid.shape=2x2", "grid.batches=2", "grid.fitness.num_images=16", "grid.mixture.num_images=32")
GENERATIONS, KIMG = 3, 0.048  # a generation has an update of D


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A judge for all runs: it is trained once."""
    out = tmp_path_factory.mktemp("study")
    train_or_load(*(digits.source(digits.Options(8), split) for split in ("train", "held_out")), out / "judge")
    for arm in study.ARMS:
        shutil.copytree(out / "judge", out / f"{arm}-0/judge")
    return study.Study(KIMG, out, (*WORDS, *GRID), "digits")


@pytest.fixture(scope="module")
def runs(small):
    """Trained in this process, which is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "_train", lambda words, folder: main(["train", *words, "--out", str(folder)]))
        return study.measured(small, ["lipizzaner", "independent"], 1)


def test_all_are_updated_equally_often(runs):
    assert runs["lipizzaner"][0]["updates"] == {"g": [2 * GENERATIONS] * 4, "d": [GENERATIONS] * 4}
    study.refuse_unequal(runs)
    other = copy.deepcopy(runs)
    other["independent"][0]["updates"]["g"][3] += 1
    with pytest.raises(SystemExit, match="in independent, expected those of lipizzaner"):
        study.refuse_unequal(other)


def test_independent_cells_have_no_neighbors(runs, small):
    (alone,) = runs["independent"]
    rate = read_recipe("digits").g.optimizer.lr
    for moment in alone["course"]:
        assert [moment[side] for side in "gd"] == [{"lr": [rate] * 4, "kept": 1.0, "lines": 4}] * 2
    (met,) = runs["lipizzaner"]
    assert any(set(moment[side]["lr"]) != {rate} for moment in met["course"] for side in "gd")
    plain = build.trainer(read_recipe("digits", [*WORDS, f"train.kimg={KIMG}"]), small.out / "x", print, lambda: False)
    for _ in range(2 * GENERATIONS):
        plain.scheme.step(plain.gan, plain.batches)
    first = _opened(small.out / "independent-0").cells[0].centre
    for side in Side:
        for name, value in plain.players[side.value].net.state_dict().items():
            assert torch.equal(first[side].network_state()[name], value)


def test_the_choice_is_made_on_other_images_than_the_score(runs, small):
    for arm, (run,) in runs.items():
        chosen, fd = run["chosen"], run["fd"]
        assert chosen["singles"][chosen["best"]] == min(chosen["singles"])
        assert fd["best single"] == run["singles"][chosen["best"]]
        assert chosen["ensemble"]["fd"] <= min(chosen["singles"])
        own = "greedy ensemble" if chosen["ensemble"]["fd"] < chosen["best cell"]["fd"] else "best cell's mixture"
        last = json.loads((small.out / f"{arm}-0/score.json").read_text())
        assert fd["the run's own"] == fd[own] == last[next(name for name in last if name.startswith("fd["))]
    alone = runs["independent"][0]
    assert alone["fd"]["best cell's mixture"] == alone["singles"][alone["chosen"]["best cell"]["cell"]]


def test_the_best_single_one_is_best_by_the_yardstick(runs, small, monkeypatch):
    for best in range(4):
        monkeypatch.setattr(scores, "_distances", lambda run, best=best: [float(cell != best) for cell in range(4)])
        found = scores.scored(small.out / "independent-0")
        assert found["chosen"]["best"] == best and found["fd"]["best single"] == found["singles"][best]


def test_single_generator_and_mixture_of_it_have_equal_scores(runs, small):
    run = _opened(small.out / "lipizzaner-0")
    net = run.make_mixture([run.cells[2].centre[Side.G].network_state()], [1.0])
    found = run.judge(run.prior, net).metrics
    assert runs["lipizzaner"][0]["singles"][2] == next(v for name, v in found.items() if name.startswith("fd["))


def test_a_kept_run_is_not_played_again(runs, small, monkeypatch):
    monkeypatch.setattr(study, "_train", lambda *_: pytest.fail("played again"))
    assert study.kept(small, "lipizzaner", 0) == runs["lipizzaner"][0]
    with pytest.raises(pytest.fail.Exception):
        study.kept(study.Study(KIMG * 2, small.out, small.words, "digits"), "lipizzaner", 0)


def test_a_run_that_fails_says_where_to_look(small):
    with pytest.raises(SystemExit, match=r"exit code 2, expected 0; see .*/bad\.log"):
        study._train(["digits", "nonsense=1"], small.out / "bad")
    assert "nonsense" in (small.out / "bad.log").read_text()


def test_a_run_that_is_not_finished_is_not_scored(runs, small):
    empty = small.out / "empty"
    empty.mkdir()
    (empty / "config.yaml").write_text((small.out / "lipizzaner-0/config.yaml").read_text())
    (empty / "judge").symlink_to(small.out / "judge")
    with pytest.raises(SystemExit, match="found no finished run"):
        scores.scored(empty)


def test_the_record_is_summed(runs, small):
    lines = summary.generations(small.out / "lipizzaner-0")
    assert [line["generation"] for line in lines] == [1, 2, 3] and "ensemble" in lines[-1]
    assert summary.spent(small.out / "lipizzaner-0")["cpu_s"] == pytest.approx(
        sum(sum(line["profile"]["cpu_s"].values()) for line in lines)
    )
    cells = {
        "0": {"score": 3.0, "lr": {"g": 0.3, "d": 1.0}, "born": {"g": [1, 4], "d": [0, 4]}},
        "1": {"score": 2.0, "lr": {"g": 0.1, "d": 1.0}, "born": {"g": [1, 3], "d": [1, 4]}},
    }
    assert summary._moment({"kimg": 5.0, "generation": 4, "cells": cells}) == {
        "kimg": 5.0, "best": 2.0, "median": 3.0,
        "g": {"lr": [0.1, 0.3], "kept": 0.5, "lines": 1}, "d": {"lr": [1.0, 1.0], "kept": 1.0, "lines": 2},
    }  # fmt: skip


def test_differences_are_taken_seed_by_seed(runs):
    both = {arm: [run, copy.deepcopy(run)] for arm, (run,) in copy.deepcopy(runs).items()}
    for arm, seed, own, single in (("lipizzaner", 0, 7, 70), ("lipizzaner", 1, 4, 40), ("independent", 0, 9, 10)):
        both[arm][seed]["fd"] |= {"the run's own": own, "best single": single}
    both["independent"][1]["fd"] |= {"the run's own": 8, "best single": 12}
    found = summary.summed(both)["paired"]
    assert found["lipizzaner, the run's own - independent, best single"]["seeds"] == [-3, -8]
    assert found["lipizzaner, the run's own - independent, the run's own"]["mean"] == -3


def test_the_table_and_the_drawing(runs, capsys):
    found = summary.summed(runs)
    study.say(found)
    shown = capsys.readouterr().out
    assert f"| lipizzaner | best single | {runs['lipizzaner'][0]['fd']['best single']:.2f} |" in shown
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `dev`")
    text = plots.plot(found)
    names = re.findall(r">(\w+: [^<]+)</text>", text)
    assert len([name for name in names if name.split(":")[0] in found["arms"]]) == 2 * 5 and "nan" not in text


def _opened(folder):
    run = grid.evolution(read_recipe(str(folder / "config.yaml")), folder, print, lambda: False, reading=True)
    assert run.resume()
    return run
