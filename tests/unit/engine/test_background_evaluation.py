"""Runs with `evaluation.mode: background`: what they record, also after a stop; training never waits."""

import json
import os
import sys

import pytest

import paragan as pg
from paragan.checkpoint.reader import read_checkpoint
from paragan.config import read_recipe
from paragan.core.interrupt import Interrupt
from paragan.engine.background_scores import BackgroundScores
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.scoring_process import ScoringProcess
from paragan.runs.run_request import RunRequest
from paragan.runs.train import train_run
from tests.unit.engine.test_background_scores import STAND_IN

SMALL = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "train.threads=1", "augment=null"),
    *("penalties=[]", "every.sample_kimg=0", "every.save_kimg=0", "every.log_steps=1", "writers=[jsonl]"),
    *("train.kimg=0.096", "every.score_kimg=0.032"),
)


@pytest.fixture
def stand_in(monkeypatch):
    """A function that lets a stand-in score; `words` run before each of its replies."""

    def put(words="", timeout_s=60.0):
        def background(config, folder):
            if config.evaluation.mode == "inline":
                return None
            command = (sys.executable, "-c", STAND_IN % words)
            process = ScoringProcess(command, dict(os.environ), folder / "background" / "log.txt")
            return BackgroundScores(run=folder, process=process, timeout_s=timeout_s)

        monkeypatch.setattr("paragan.build.game_trainer.background_scores", background)

    return put


def trained(out, *words, interrupt=None):
    config = read_recipe("digits", [*SMALL, "evaluation.mode=background", *words])
    return train_run(RunRequest(config=config, name="digits", out=out, has_commands=True), interrupt or Interrupt())


def record(out, kind):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def test_run_does_not_wait_and_its_last_score_is_waited_for(tmp_path, stand_in):
    last = tmp_path / "background" / "step-000000006" / "manifest.json"
    stand_in(f"while step == 0 and not __import__('os').path.exists({str(last)!r}): time.sleep(0.01)")
    assert trained(tmp_path) == 0
    assert [line["step"] for line in record(tmp_path, "score")] == [0, 6]
    assert [line["text"] for line in record(tmp_path, "event")] == [
        "the score of step 2 is skipped: a newer checkpoint waits",
        "the score of step 4 is skipped: a newer checkpoint waits",
        "warning: the extractor is rough",
    ]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds.index("score") > max(number for number, line in enumerate(lines) if line["kind"] == "step")
    assert read_checkpoint(tmp_path / "best").step == 6
    assert json.loads((tmp_path / "score.json").read_text())["step"] == 6
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == 0
    assert list((tmp_path / "background").glob("step-*")) == []


def test_run_stopped_while_it_waits_for_a_score_computes_it_after_a_resume(tmp_path, stand_in, monkeypatch):
    class Stopping(Interrupt):
        requested = False

    interrupt = Stopping()
    wait = TrainingLoop._wait_for_scores

    def stopped(trainer, background):
        interrupt.requested = True
        return wait(trainer, background)

    stand_in("time.sleep(60)")
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_wait_for_scores", stopped)
        assert trained(tmp_path, interrupt=interrupt) == 85
    assert record(tmp_path, "score") == []
    left = sorted(path.name[-1] for path in (tmp_path / "background").glob("step-*"))
    assert left == ["0", "6"]
    stand_in()
    assert trained(tmp_path) == 0
    assert [(line["step"], line["fd"]) for line in record(tmp_path, "score")] == [(0, 9.0), (6, 2.5)]
    assert trained(tmp_path) == 0  # nothing is left to do
    assert len(record(tmp_path, "score")) == 2


def test_networks_from_memory_refuse_scores_in_the_background(tmp_path):
    from tests.laws.poster_nets import Discriminator, Generator

    settings = {"data.size": 8, "evaluation.mode": "background"}
    networks = {"generator": Generator(), "discriminator": Discriminator()}
    with pytest.raises(pg.ConfigError, match=r"evaluation\.mode=background .* networks from Python"):
        pg.train("digits", settings, out=tmp_path / "run", **networks)
    assert not (tmp_path / "run").exists()
