"""Traces of chosen steps, and settings that are refused in one line."""

from __future__ import annotations

import gzip
import json

import pytest

from paragan.cli.main import main
from tests.tiny_run import SMALL, TINY


def train(folder, *words):
    settings = [*TINY, *SMALL, "train.kimg=0.16", "writers=[jsonl]", *words]
    return main(["train", "digits", *settings, "--out", str(folder)])


def test_trace_has_the_chosen_steps_and_the_run_does_not_change(tmp_path):
    assert train(tmp_path / "plain") == 0
    assert train(tmp_path / "traced", "train.trace_steps=[3,4]") == 0
    (path,) = (tmp_path / "traced" / "traces").iterdir()
    assert path.name == "rank-0-steps-3-4.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = [event for event in events if event.get("name", "").startswith("Optimizer.step#")]
    assert len(steps) == 4  # of both players in two steps
    record = (tmp_path / "traced" / "metrics.jsonl").read_text()
    assert f"trace of steps 3 to 4: {path}" in record
    one, other = (next((tmp_path / name / "checkpoints").iterdir()) for name in ("plain", "traced"))
    for file in one.glob("*.safetensors"):
        assert file.read_bytes() == (other / file.name).read_bytes()


def test_run_that_begins_after_the_first_step_traces_the_rest_and_one_that_ends_before_writes_nothing(tmp_path):
    assert train(tmp_path / "run", "train.trace_steps=[8,20]") == 0
    assert not (tmp_path / "run" / "traces").exists()
    assert train(tmp_path / "run", "train.trace_steps=[8,12]", "train.kimg=0.32") == 0
    assert [path.name for path in (tmp_path / "run" / "traces").iterdir()] == ["rank-0-steps-11-12.json.gz"]


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("train.trace_steps=[5,4]", "must be a first and a last step"),
        ("train.trace_steps=[1,5000]", "at most 200 steps"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(tmp_path, capsys, word, complaint):
    assert train(tmp_path / "run", word) == 2
    said = capsys.readouterr().err
    assert complaint in said and "Traceback" not in said
