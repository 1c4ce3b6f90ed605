"""A run in its folder: record, pictures, score, exit; numbers reach the host at log points only."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from paragan import build
from paragan.config import load
from paragan.core.types import Report
from paragan.engine.folder import RunFolder
from paragan.engine.session import Session
from paragan.writers.console import Console, Pace, clock_time
from paragan.writers.jsonl import Writer

SETTINGS = [
    "data.size=8", "model.width=8", "model.latent=16", "train.batch=16", "train.kimg=0.16", "every.log_steps=4",
    "every.sample_kimg=0.08",
    "every.save_kimg=0.08", "score.extractor=none",
]  # fmt: skip


def session(folder, *more):
    trainer = build.trainer(load("digits", [*SETTINGS, *more]), folder, print, lambda: False)
    return Session(trainer, RunFolder(folder), Console())


def record(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_what_a_run_leaves(tmp_path, monkeypatch):
    reads = []
    read = Report.read
    monkeypatch.setattr(Report, "read", lambda self: reads.append(self.step) or read(self))
    run = session(tmp_path)
    with run.folder:
        run.run()
    assert reads == [4, 8]
    lines = record(tmp_path)
    assert [(x["kind"], x["step"]) for x in lines] == [
        ("samples", 0), ("step", 4), ("samples", 5), ("checkpoint", 5), ("step", 8), ("samples", 10),
        ("checkpoint", 10),
    ]  # fmt: skip
    step = next(x for x in lines if x["kind"] == "step")
    assert {
        "d/loss/adversarial",
        "d/real",
        "d/fake",
        "d/gradient_norm",
        "g/loss/adversarial",
        "images_per_s",
        "data_wait",
    } <= step.keys()
    with Image.open(tmp_path / "samples" / "step-0000010.png") as grid:
        assert grid.size == (10 * 34, 10 * 34)  # ten classes, ten columns, 8 px shown at 32 with a gap
        assert grid.getextrema() != (0, 0)


def test_a_resumed_record_forgets_the_lost_future(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 4}\n{"step": 5}\n{"step": 7}\n{"st')
    writer = Writer(path, step=5)
    writer.write({"step": 6})
    writer.close()
    assert [x["step"] for x in record(tmp_path)] == [4, 5, 6]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3725, "1:02:05")])
def test_clock_time(seconds, text):
    assert clock_time(seconds) == text


def test_pace():
    assert str(Pace(500, 2000, 100.0, 0.031)) == "100 images/s  ETA 0:15  data wait 3%"
