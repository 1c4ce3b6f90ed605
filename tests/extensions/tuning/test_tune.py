"""`paragan tune`: which trials it runs, what becomes of them, and what it refuses; nothing is trained here."""

import csv
import errno
import gc
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from paragan.cli.main import main
from paragan.core.errors import CheckpointError, ConfigError, DataError, DivergedError, outcome
from paragan.core.metric import Direction
from paragan.evaluation.score import Score
from paragan.extensions.tuning import results as tune_results, space as tune_space, tune
from paragan.extensions.tuning.space import parse_space
from paragan.extensions.tuning.study import Study, StudyPlan
from paragan.report import figure

RATE = "g.optimizer.lr=log:1e-5..1e-1"
SHORT = ["tune", "digits", "--kimg", "8", "every.score_kimg=2", "--out", "study"]


def by_rate(config, kimg):
    """The score of a game whose best rate is 1e-3."""
    return abs(config.g.optimizer.lr / 1e-3 - 1) + 1 / kimg


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Replaces training: the rates and settings of each trial, whose scores `trained.score` gives. Draws no picture."""

    class Trained(list):
        score = staticmethod(by_rate)

    found = Trained()

    def train(trial, log):
        config = trial.tuning.request(trial.number, trial.values).config
        found.append((trial.number, config))
        for kimg in (2.0, 4.0, 8.0):
            values = Score(
                metrics={"fd[judge]": float(found.score(config, kimg)), "coverage": 0.5}, num_images=9, protocol={}
            ).values
            trial._report(config, kimg, values)
            if trial.is_pruned:
                trial.state = "pruned"
                return
        trial.state = "complete"

    monkeypatch.setattr(tune._Trial, "_train_in_folder", train)
    monkeypatch.setattr(tune_results, "render_figure", lambda *_: b"")
    monkeypatch.setattr(gc, "collect", lambda: 0)  # no networks are left
    monkeypatch.chdir(tmp_path)
    return found


def rows(folder="study"):
    with open(Path(folder) / "trials.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def plan(*words, trials=3, settings=(), **more):
    _, dimensions = parse_space(words or [RATE])
    return StudyPlan(
        recipe="digits",
        settings=settings,
        dimensions=dimensions,
        goal="fd",
        direction=Direction.LOWER,
        trials=trials,
        kimg=8.0,
        seed=0,
        **more,
    )


# the trials


def test_search_approaches_the_best_rate_prunes_and_names_the_command_of_the_winner(trained, capsys, monkeypatch):
    monkeypatch.setattr(tune_results, "render_figure", figure.render_figure)
    assert main([*SHORT, RATE, "train.batch=32", "--trials", "12"]) == 0
    printed = capsys.readouterr().out
    found = rows()
    assert len(found) == len(trained) == 12 and [row["trial"] for row in found] == [str(n) for n in range(12)]
    best = min((row for row in found if row["state"] == "complete"), key=lambda row: float(row["fd"]))
    assert float(best["g.optimizer.lr"]) == pytest.approx(1e-3, rel=0.5)
    assert {row["state"] for row in found} == {"complete", "pruned"}
    assert {config.train.kimg for _, config in trained} == {8.0} and trained[0][1].train.batch == 32
    command = shlex.split(printed.splitlines()[-1])
    settings = ["every.score_kimg=2", "train.batch=32", f"g.optimizer.lr={best['g.optimizer.lr']}"]
    assert command[1:] == ["train", "digits", *settings, "--out", "runs/digits-tuned"]
    assert "trial 0 (1 of 12): fd " in printed and " left\n" in printed
    assert Path("study/trials.png").read_bytes().startswith(b"\x89PNG")


def test_goal_of_which_high_values_are_better_is_maximised(trained, capsys):
    assert main([*SHORT, "g.optimizer.lr=1e-4,1e-3", "--goal", "coverage", "--sampler", "grid"]) == 0
    assert "coverage 0.5" in capsys.readouterr().out
    assert Study(plan("g.optimizer.lr=1,2", trials=1), Path("s"))._study.direction.name == "MINIMIZE"
    higher = replace(plan(RATE, trials=1), goal="coverage", direction=Direction.HIGHER)
    assert Study(higher, Path("h"))._study.direction.name == "MAXIMIZE"


def test_grid_trains_each_combination_once(trained):
    words = ["g.optimizer.lr=1e-4,1e-3", "loss=hinge,nonsaturating", "train.batch=16"]
    assert main([*SHORT, *words, "--sampler", "grid"]) == 0
    found = {(config.g.optimizer.lr, config.loss.name) for _, config in trained}
    assert len(trained) == len(found) == 4


def test_same_command_continues_and_repeats_nothing(trained):
    assert main([*SHORT, RATE, "--trials", "2"]) == 0
    assert main([*SHORT, RATE, "--trials", "4"]) == 0
    assert main([*SHORT, RATE, "--trials", "4"]) == 0
    pieces = [config.g.optimizer.lr for _, config in trained]
    assert [number for number, _ in trained] == [0, 1, 2, 3] and len(set(pieces)) == 4
    assert main([*SHORT[:-1], "whole", RATE, "--trials", "4"]) == 0
    assert [config.g.optimizer.lr for _, config in trained[4:]] == pieces  # by the seed
    assert main([*SHORT[:-1], "other", RATE, "--trials", "1", "seed=1"]) == 0
    assert trained[-1][1].g.optimizer.lr not in pieces


def test_trials_that_diverge_or_fail_are_recorded_and_do_not_end_the_study(trained):
    def score(config, kimg):
        number = len(trained) - 1
        if number == 1:
            raise DivergedError("g is not finite")
        if number == 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
        return float("nan") if number == 3 else 1.0

    trained.score = score
    assert main([*SHORT, RATE, "--trials", "5"]) == 0
    found = rows()
    assert [row["state"] for row in found] == ["complete", "pruned", "failed", "pruned", "complete"]
    assert found[1]["reason"] == "g is not finite" and found[2]["reason"].startswith("out of memory")
    assert found[3]["reason"] == "fd[judge] is not finite"
    assert "can't allocate memory" in Path("study/logs/2.log").read_text()


def test_study_without_a_score_is_an_error_with_the_last_reason(trained, capsys):
    def score(config, kimg):
        raise DivergedError("d is not finite")

    trained.score = score
    assert main([*SHORT, RATE, "--trials", "2"]) == 2
    assert "no trial of study has a score; reason of the last trial: d is not finite" in capsys.readouterr().err


def test_scores_without_the_goal_end_the_study(trained, capsys):
    assert main([*SHORT, RATE, "--goal", "label_accuracy"]) == 2
    assert "goal label_accuracy is not among the scores of this run: fd[judge], coverage" in capsys.readouterr().err
    assert len(trained) == 1


@pytest.mark.parametrize(
    "error", [ConfigError("g cannot train"), DataError("no images"), OSError(errno.ENOSPC, "No space left", "trials")]
)
@pytest.mark.parametrize("failing", [0, 2])
def test_error_that_the_user_must_change_ends_the_study_and_its_trial_is_tried_again(trained, error, failing, capsys):
    def score(config, kimg):
        if len(trained) > failing:
            raise error
        return by_rate(config, kimg)

    trained.score = score
    assert main([*SHORT, RATE, "--trials", "4"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and f"trial {failing}: " in line and outcome(error)[1] in line
    assert len(trained) == failing + 1 and not Path("study/trials.csv").exists()
    trained.score = by_rate
    assert main([*SHORT, RATE, "--trials", "4"]) == 0
    assert [number for number, _ in trained[failing + 1 :]] == list(range(failing, 4))
    assert trained[failing][1].g.optimizer.lr == trained[failing + 1][1].g.optimizer.lr


def test_failed_trials_are_tried_again_by_the_next_call_with_their_values(trained):
    def score(config, kimg):
        if len(trained) in (2, 3):
            raise RuntimeError("a bug")
        return by_rate(config, kimg)

    trained.score = score
    assert main([*SHORT, RATE, "--trials", "4"]) == 0
    assert [row["state"] for row in rows()] == ["complete", "failed", "failed", "complete"]
    trained.score = by_rate
    assert main([*SHORT, RATE, "--trials", "4"]) == 0
    assert [row["trial"] for row in rows()] == ["0", "1", "2", "3"] and "failed" not in {r["state"] for r in rows()}
    assert [number for number, _ in trained] == [0, 1, 2, 3, 1, 2]
    rates = [config.g.optimizer.lr for _, config in trained]
    assert rates[4:] == rates[1:3]


def test_failed_trials_of_a_grid_are_tried_again_and_no_combination_twice(trained):
    def score(config, kimg):
        if len(trained) == 1:
            raise RuntimeError("a bug")
        return by_rate(config, kimg)

    trained.score = score
    words = [*SHORT, "g.optimizer.lr=1e-4,1e-3", "loss=hinge,nonsaturating", "--sampler", "grid"]
    assert main(words) == 0 and main(words) == 0
    chosen = [(config.g.optimizer.lr, config.loss.name) for _, config in trained]
    assert len(chosen) == 5 and len(set(chosen)) == 4 and chosen[0] == chosen[4]


@pytest.mark.parametrize(("others", "text"), [(1, "1 trial is still running elsewhere"), (2, "2 trials are still")])
def test_process_that_ends_before_others_says_how_many_trials_run(trained, others, text, capsys):
    fixed, _ = parse_space(["every.score_kimg=2", RATE])
    running = [Study(plan(settings=fixed), Path("study")) for _ in range(others)]
    for study in running:
        study.start()
    assert main([*SHORT, RATE, "--trials", "3"]) == 0
    assert text in capsys.readouterr().out and len(trained) == 3 - others
    for study in running:
        study.end("complete", 1.0, "")
    assert main([*SHORT, RATE, "--trials", "3"]) == 0
    assert "still running" not in capsys.readouterr().out and len(rows()) == 3


def test_signal_leaves_the_trial_to_the_next_call(trained, monkeypatch):
    def stopped(trial, log):
        trial.interrupt.requested = True

    with monkeypatch.context() as patched:
        patched.setattr(tune._Trial, "_train_in_folder", stopped)
        assert main([*SHORT, RATE, "--trials", "1"]) == 85
    assert main([*SHORT, RATE, "--trials", "1"]) == 0
    assert [number for number, _ in trained] == [0]


# the study


def test_trial_of_a_process_that_ended_is_given_out_again_with_its_values(tmp_path):
    mine, other = Study(plan(), tmp_path), Study(plan(), tmp_path)
    assert [mine.start()[0], other.start()[0]] == [0, 1]
    values = dict(other._trial.params)
    other.close()  # as the end of its process does
    other = Study(plan(), tmp_path)
    assert other.start() == (1, values)  # not 0, whose process lives
    for study in (mine, other):
        study.end("complete", 1.0, "")
    assert mine.start()[0] == 2
    assert other.start() is None  # the last one runs
    mine.end("complete", 1.0, "")
    assert [trial.number for trial in mine.ended()] == [0, 1, 2]


def test_grid_with_an_interrupted_trial_is_complete(tmp_path):
    grid = plan("a=1,2", "b=1,2", trials=20, sampler="grid")
    first = Study(grid, tmp_path)
    first.start()
    first.close()
    study = Study(grid, tmp_path)
    while study.start() is not None:
        study.end("complete", 1.0, "")
    combinations = {tuple(trial.values.values()) for trial in study.ended()}
    assert len(study.ended()) == len(combinations) == 4


def test_folder_of_another_study_is_refused(tmp_path):
    Study(plan(), tmp_path)
    Study(plan(trials=9), tmp_path)
    with pytest.raises(CheckpointError, match=r"holds a study with other dimensions; give the former values, or"):
        Study(plan("a=1..2"), tmp_path)


def test_results_of_trials_are_ranked_by_the_goal(tmp_path):
    study = Study(plan(trials=4), tmp_path)
    for state, value, reason in (("complete", 3.0, ""), ("pruned", None, "diverged"), ("complete", 2.0, "")):
        study.start()
        study.end(state, value, reason)
    found = study.ended()
    assert [row[:3] for row in tune_results.trial_rows(plan(), found)[1:]] == [
        ["2", "complete", "2"],
        ["0", "complete", "3"],
        ["1", "pruned", "–"],
    ]
    assert tune_results.best_trial(plan(), found).number == 2


# extras


def test_missing_extras_are_named(trained, monkeypatch, capsys):
    monkeypatch.setattr(tune_results, "find_spec", lambda name: None)
    assert main([*SHORT, RATE, "--trials", "1"]) == 0
    assert "study/trials.csv; for a plot" in capsys.readouterr().out and not Path("study/trials.png").exists()
    monkeypatch.setattr(tune_space, "find_spec", lambda name: None)
    assert main([*SHORT, RATE]) == 2
    assert "optuna is not installed; run" in capsys.readouterr().err
