"""`paragan replay` of a random step of every scheme, strategy and network, by command."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paragan.cli.main import main
from tests.distributed.cases_numbers import SHARES
from tests.distributed.drawn_runs import DrawnRun, draw_run
from tests.golden.configurations import BASE, COMMON, CONFIGURATIONS, write_pairs
from tests.processes import environment

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]

PERIODS = ("every.save_kimg=0.1", "every.log_steps=4", "every.keep=9", "writers=[jsonl, console]")
STALE = "{name: asynchronous, staleness: 2, cached: 0.25}"
ONE_GAME = {name: words for name, words in CONFIGURATIONS.items() if not any(word.startswith("grid") for word in words)}
RUNS = ONE_GAME | {
    "stale-asynchronous": (f"scheme={STALE}", "train.kimg=0.4", "every.sample_kimg=0.1"),
    "stale-asynchronous-on-3-ranks": (f"scheme={STALE}", "train.kimg=0.4", "devices=3"),
    "stale-asynchronous-by-differences-on-4-ranks": (
        *(f"scheme={STALE}", "scheme.placement=paired", "train.kimg=0.4", "devices=4"),
        *("scheme.state_dtype=bf16", "scheme.fakes_dtype=bf16"),
    ),
    "in-turns-on-2-ranks": ("scheme={name: asynchronous, staleness: 0, reuse: false}", "train.kimg=0.4", "devices=2"),
    "ddp-on-3-ranks": ("g.strategy=ddp", "d.strategy=ddp", "penalties=[{name: r1, interval: 4}]", "devices=3"),
}


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paragan", *words]
    return subprocess.run(command, env=environment(), cwd=folder, capture_output=True, text=True, timeout=250)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_replay_of_a_random_step_is_equal(tmp_path, name):
    write_pairs(tmp_path / "pairs")
    (tmp_path / "recipe.yaml").write_text(BASE)
    words = [word.replace("PAIRS", "pairs") for word in (*COMMON, *PERIODS, *RUNS[name])]
    done = called(tmp_path, "train", "recipe.yaml", *words, "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    step = random.Random(name).randint(1, 16)
    again = called(tmp_path, "replay", "run", "--step", str(step))
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.startswith("replaying steps ")
    assert "losses of step" in again.stdout.splitlines()[-1] or f"tensors of step {step}" in again.stdout
    assert again.stdout.endswith("equal bit for bit\n")


def replay_drawn(folder: Path, drawn: DrawnRun, call: Callable[..., str]) -> None:
    """Train a drawn run, replay its step, and expect equality."""
    (folder / "recipe.yaml").write_text(BASE)
    call("train", "recipe.yaml", *COMMON, *drawn.words, "--out", "run")
    if drawn.resume is not None:
        call("train", "run", *drawn.resume)
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    last = max(line["step"] for line in lines if line["kind"] == "step")
    step = 1 + int(drawn.place * last)
    said = call("replay", "run", "--step", str(step))
    assert said.endswith("equal bit for bit\n"), (drawn, step, said)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 6])
def test_replay_of_a_random_step_of_a_random_run_is_equal(tmp_path, seed):
    def call(*words: str) -> str:
        done = called(tmp_path, *words)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
        return done.stdout

    replay_drawn(tmp_path, draw_run(seed), call)


def test_replay_of_a_random_step_of_a_random_run_in_this_process_is_equal(tmp_path, monkeypatch, capsys):
    def call(*words: str) -> str:
        assert main(list(words)) == 0, (words, capsys.readouterr())
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    replay_drawn(tmp_path, draw_run(seed=5, is_alone=True), call)


def test_recorded_numbers_do_not_depend_on_how_many_there_are(three_ranks):
    assert three_ranks.run("tests.distributed.cases_numbers:recorded") == [[sum(SHARES)] * 7] * 3
