"""kill -9 at random moments, again and again in one run: the final weights are the undisturbed run's, bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paragan.checkpoint.writer import CheckpointWriter
from paragan.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
BATCH = 16
SETTINGS = (
    "data.size=8", "model.width=8", "model.latent=16", f"train.batch={BATCH}",
    "every.log_steps=5", "every.save_kimg=0.32", "every.sample_kimg=3.2", "every.score_kimg=0",
    "evaluation.features=null",
    "g.precision=fp32",     "d.precision=fp32", "d.schedule.name=linear", "d.schedule.end=600", "d.schedule.warmup=50",
    "penalties=[{name: r1, weight: 0.1}]",
)  # fmt: skip


def command(out: Path, kimg: float) -> list[str]:
    return ["train", "digits", *SETTINGS, f"train.kimg={kimg}", "--out", str(out)]


def start(out: Path, kimg: float) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "paragan", *command(out, kimg)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def newest(out: Path) -> str:
    """The name of the newest finished checkpoint."""
    return max((p.name for p in (out / "checkpoints").glob("step-*")), default="")


def kill_somewhere(out: Path, kimg: float, moment: random.Random) -> bool:
    """Start, wait for a checkpoint of its own, and kill a random time after that; False if the run ended first."""
    process = start(out, kimg)
    before, deadline = newest(out), time.monotonic() + 100
    try:
        while newest(out) <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(moment.random() * 0.5)
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGKILL)
        return True
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.chaos
@pytest.mark.parametrize(("times", "kimg"), [(1, 2.56), pytest.param(5, 9.6, marks=pytest.mark.slow)])
def test_kills_leave_no_trace(tmp_path, times, kimg):
    assert main(command(tmp_path / "straight", kimg)) == 0

    moment = random.Random(20261120)
    kills = sum(kill_somewhere(tmp_path / "killed", kimg, moment) for _ in range(times))
    assert kills == times, "the run ended before it was killed so often: make it longer"
    last = start(tmp_path / "killed", kimg)
    output, _ = last.communicate(timeout=180)
    assert last.returncode == 0, output
    assert "resuming at step" in output

    a, b = (CheckpointWriter(tmp_path / name / "checkpoints").newest() for name in ("straight", "killed"))
    assert a.step == b.step == kimg * 1000 / BATCH
    assert a.values == b.values
    for group, tensors in a.groups.items():
        assert tensors.keys() == b.groups[group].keys()
        for name, tensor in tensors.items():
            assert tensor.equal(b.groups[group][name]), (group, name)
    assert any(name.startswith("ema/") for name in a.groups["g"])

    records = [json.loads(line) for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    steps = [record["step"] for record in records if record["kind"] == "step"]
    assert steps == sorted(set(steps))
    assert steps[-1] == a.step
