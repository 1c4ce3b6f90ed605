"""Ctrl-C, a closed terminal and a scheduler's warning save and exit 85; the same command goes on."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import environment

pytestmark = pytest.mark.chaos
KIMG = 9.6
SETTINGS = (
    *("data.size=8", "model.width=8", "model.latent=16", "train.batch=16", "every.log_steps=5", "every.save_kimg=0.32"),
    *(
        "every.sample_kimg=3.2",
        "every.score_kimg=0",
        "evaluation.features=null",
        "g.precision=fp32",
        "d.precision=fp32",
    ),
)


def start(out: Path, kimg: float) -> subprocess.Popen:
    words = [sys.executable, "-m", "paragan", "train", "digits", *SETTINGS, f"train.kimg={kimg}", "--out", str(out)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(words, env=environment(), **pipes)


def newest(out: Path) -> str:
    """The name of the newest finished checkpoint."""
    return max((p.name for p in (out / "checkpoints").glob("step-*")), default="")


def wait_for(condition, process, seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.fixture
def running(tmp_path):
    process = start(tmp_path / "run", KIMG)
    yield process, tmp_path / "run"
    process.kill()
    process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_the_first_signal_saves_this_very_step(running, number):
    process, out = running
    wait_for(lambda: newest(out), process)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 85, said
    assert "stopping after this step" in said
    assert "Traceback" not in said
    ended = json.loads((out / "exit.json").read_text())
    assert ended["code"] == 85
    assert newest(out) == f"step-{ended['step']:09d}"

    again = start(out, KIMG)
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert f"resuming at step {ended['step']}" in said


def test_a_signal_before_torch_is_there_is_heard(running):
    process, out = running
    maps = Path(f"/proc/{process.pid}/maps")
    wait_for(lambda: "libtorch_cpu" in maps.read_text(), process)  # the import is under way
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 85, said
    assert newest(out) == "step-000000000"
    assert "Traceback" not in said
