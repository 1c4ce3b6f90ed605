"""Bad settings: the run names the cause, and the command that it prints trains without advice."""

import json
import shlex

import pytest

from paragan.cli.main import main
from paragan.core.files import read_json_lines

PERIODS = ("train.kimg=1.28", "every.sample_kimg=1.28", "every.log_steps=10", "every.save_kimg=0")
SMALL = ("data.size=16", "model.width=8", "train.batch=32", "evaluation.features=null", "writers=[jsonl,console]")


def advice_of(words, out):
    """Return the advice of a new run by the command line."""
    assert main(["train", *words, "--out", str(out)]) == 0
    return [line for line in read_json_lines(out / "metrics.jsonl") if line["kind"] == "advice"]


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("d.optimizer.lr=0.03", {"d.optimizer.lr": 1e-3}),
        ("g.optimizer.lr=1e-5", {"g.optimizer.lr": 1e-3}),
        ("penalties.0.weight=1000", {"penalties.0.weight": 1.0}),
    ],
)
def test_bad_setting_is_named_and_the_printed_command_has_no_advice(tmp_path, capsys, word, changes):
    out = tmp_path / "a run"
    (advice,) = advice_of(["digits", *SMALL, *PERIODS, word], out)
    assert advice["changes"] == changes
    assert advice["command"] in capsys.readouterr().out
    words = shlex.split(advice["command"])
    assert words[-3:] == ["--out", str(out), "--fresh"] and word not in words
    assert advice_of(words[words.index("train") + 1 : -3], tmp_path / "again") == []


def test_usual_settings_have_no_advice(tmp_path):
    assert advice_of(["digits", *SMALL, *PERIODS], tmp_path) == []


@pytest.mark.slow  # 20 runs of 10 to 40 kimg
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("held_out", [False, True])
def test_ten_of_twelve_bad_settings_are_named_and_repaired(tmp_path, held_out):
    from benchmarks.bad_settings import BAD, HEALTHY, HELD_OUT, judge

    runs = {name: judge(name, tmp_path) for name in (HELD_OUT if held_out else BAD)}
    missed = len(runs) // 4 if held_out else 2
    for key in ("named", "repaired"):
        assert sum(not run[key] for run in runs.values()) <= missed, json.dumps(runs, indent=1)
    if not held_out:
        assert [name for name in HEALTHY if not judge(name, tmp_path)["quiet"]] == []
