"""A stop while the judge is trained: exit code 85, nothing half-written, and a resumed run that scores after all."""

import json

import pytest

from paragan.config import read_recipe
from paragan.core.interrupt import Interrupt
from paragan.features import judge as judging
from paragan.runs.run_request import RunRequest
from paragan.runs.train import train_run

pytestmark = pytest.mark.usefixtures("quick_judge")
PLAIN = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "augment=null", "train.threads=1"),
    *("every.sample_kimg=0", "every.save_kimg=0", "evaluation.num_images=100", "writers=[jsonl,console]"),
)
GRID = ("grid.shape=1x2", "grid.batches=2", "scheme=synchronous", "penalties=[]", "grid.mixture.num_images=50")


class Stopping(Interrupt):
    """Requested from the fourth step of a judge's training on."""

    requested = False


@pytest.fixture
def interrupt(monkeypatch):
    stopping, whole = Stopping(), judging.train_classifier

    def fitted(train, seed, progress):
        def watched(steps):
            stopping.requested |= steps == 3
            assert steps <= 3, "the training goes on after the stop"
            progress(steps)

        return whole(train, seed, watched)

    monkeypatch.setattr(judging, "train_classifier", fitted)
    return stopping


def trained(out, interrupt, *words):
    request = RunRequest(config=read_recipe("digits", [*PLAIN, *words]), name="digits", out=out, has_commands=True)
    return train_run(request, interrupt)


def record(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("words", "stopped_at", "scores"),
    [
        (("every.score_kimg=0.032", "train.kimg=0.064"), 0, [0, 2, 4]),
        (("every.score_kimg=0", "train.kimg=0.064"), 4, [4]),
        ((*GRID, "every.score_kimg=0", "train.kimg=0.064"), 0, [4]),
    ],
    ids=["the untrained", "the last", "of a grid"],
)
def test_run_stopped_during_judge_training_saves_and_resumes(
    tmp_path, interrupt, monkeypatch, capsys, words, stopped_at, scores
):
    assert trained(tmp_path, interrupt, *words) == 85
    told = json.loads((tmp_path / "exit.json").read_text())
    assert told == {"code": 85, "step": stopped_at, "reason": "stopped by a signal; saved"}
    assert [line for line in record(tmp_path) if line["kind"] == "score"] == []
    lines = capsys.readouterr().out.splitlines()
    assert any("trains it anew" in line for line in lines)
    assert "paragan train " in lines[-2] and "paragan eval " in lines[-1]
    assert not (tmp_path / "judge").exists() and not (tmp_path / "best").exists()
    monkeypatch.undo()
    assert trained(tmp_path, Interrupt(), *words) == 0
    assert [line["step"] for line in record(tmp_path) if line["kind"] == "score"] == scores
    assert [line.get("code") for line in record(tmp_path) if line["kind"] in ("start", "end")] == [None, 85, None, 0]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines)) and any("kimg  fd " in line for line in lines)


def test_run_resumed_computes_pending_score(tmp_path, monkeypatch):
    """In the middle of a run: as if there had been no stop."""
    words = ("every.score_kimg=0.032", "train.kimg=0.096")
    with monkeypatch.context() as patch:
        later = Stopping()
        patch.setattr("paragan.engine.training_loop.TrainingLoop._evaluate_untrained", lambda trainer: iter(()))
        whole = judging.train_classifier

        def fitted(train, seed, progress):
            later.requested = True
            return whole(train, seed, progress)

        patch.setattr(judging, "train_classifier", fitted)
        assert trained(tmp_path, later, *words) == 85
    assert json.loads((tmp_path / "exit.json").read_text())["step"] == 2
    assert trained(tmp_path, Interrupt(), *words) == 0
    assert [line["step"] for line in record(tmp_path) if line["kind"] == "score"] == [2, 4, 6]
