"""Whole command lines with G and D on ranks of their own: a stop, kills, a rank that hangs, a repetition."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.distributed.test_launch import newest, train
from tests.processes import environment, wait_for

pytestmark = pytest.mark.distributed

ASYNC = "scheme.name=asynchronous"


def called(folder, *words):
    command = [sys.executable, "-m", "paragan", *words]
    return subprocess.run(command, env=environment(), cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
@pytest.mark.chaos
def test_stop_saves_both_players_at_one_step_and_any_world_resumes(tmp_path, started):
    out = tmp_path / "run"
    started.append(process := train(out, ASYNC, "train.kimg=160", devices=("devices=3",)))
    wait_for(lambda: newest(out) >= "step-000000020", process)
    os.killpg(process.pid, signal.SIGINT)
    said, complaints = process.communicate(timeout=100)
    assert process.returncode == 85, said + complaints
    assert "ranks     3 on 1 host: G none on 0; D ddp on 1, 2; batches of 16 images" in said
    ended = json.loads((out / "exit.json").read_text())
    assert newest(out) == f"step-{ended['step']:09d}" and ended["step"] % 5 == 0
    for devices in (1, 2):
        kimg = (ended["step"] + 10 * devices) * 16 / 1000
        done = called(
            tmp_path, "train", str(out / "config.yaml"), "--out", str(out), f"train.kimg={kimg}", f"devices={devices}"
        )
        assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads((out / "checkpoints" / newest(out) / "state.json").read_text())
    versions = {side: told["version"] for side, told in state["values"]["players"].items()}
    assert versions == {"g": ended["step"] + 20, "d": ended["step"] + 20}
