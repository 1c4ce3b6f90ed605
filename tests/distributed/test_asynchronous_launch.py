"""Whole command lines with G and D on ranks of their own: a stop, kills, a rank that hangs, a repetition."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.distributed.test_launch import by_hand, free_port, newest, torchrun, train
from tests.processes import environment, wait_for

pytestmark = pytest.mark.distributed

ASYNC = "scheme.name=asynchronous"
DEADLY = '''
"""Kills the process of the player whose turn MISCHIEF names: attempt/side/call."""
import os
from paragan.core.loss import Loss
from paragan.losses import nonsaturating

moments = os.environ.get("MISCHIEF", "").split(",")
attempt, calls = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), {"g": 0, "d": 0}

def counted(side):
    calls[side] += 1
    if f"{attempt}/{side}/{calls[side]}" in moments:
        os.kill(os.getpid(), 9)

def d_loss(*given):
    counted("d")
    return nonsaturating.d_loss(*given)

def g_loss(*given):
    counted("g")
    return nonsaturating.g_loss(*given)

loss = Loss(d_loss, g_loss)
'''


@pytest.fixture
def deadly(tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "loss.py").write_text(DEADLY)
    return "loss=odd.loss"


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


@pytest.mark.slow
@pytest.mark.chaos
def test_a_killed_rank_of_either_player_is_replaced_unattended(tmp_path, started, deadly):
    out = tmp_path / "run"
    process = torchrun(out, deadly, ASYNC, "train.kimg=0.8", restarts=2, MISCHIEF="0/d/30,1/g/15")
    started.append(process)
    said, complaints = process.communicate(timeout=280)
    assert process.returncode == 0, said + complaints
    assert said.count("resuming at step 20") == 2, said
    assert "restarting from the last checkpoint: rank 1 failed" in said
    assert "restarting from the last checkpoint: rank 0 failed" in said
    assert newest(out) == "step-000000050"


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("rank", [0, 1])
def test_hanging_player_times_out(tmp_path, started, rank):
    port, out = free_port(), tmp_path / "run"
    started += [by_hand(out, n, port, ASYNC, "train.timeout_s=5", "train.kimg=160") for n in range(2)]
    wait_for(lambda: newest(out) >= "step-000000020", started[0])
    started[rank].send_signal(signal.SIGSTOP)
    said, complaints = started[1 - rank].communicate(timeout=100)
    assert started[1 - rank].returncode == 75, said + complaints
    assert "Traceback" not in complaints
