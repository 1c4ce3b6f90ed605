"""Workers of a grid that are killed, stopped or slowed down: the others go on, and the genomes come out the same."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paragan.cli.main import main
from tests.processes import children, environment, wait_for

pytestmark = [pytest.mark.distributed, pytest.mark.chaos, pytest.mark.slow]

GRID = (
    *("grid.shape=2x2", "grid.batches=20", "grid.executor=loop", "grid.heartbeat_s=1.0", "grid.fitness.num_images=16"),
    *("model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}", "scheme=synchronous", "penalties=[]"),
    *("augment=null", "evaluation.features=null", "every.sample_kimg=0", "every.save_kimg=0", "every.score_kimg=0"),
    *("train.batch=8", "train.threads=1", "train.kimg=1.6", "train.timeout_s=60", "writers=[jsonl, console]"),
)
WAIT_S = 120


def train(folder, *words):
    command = [sys.executable, "-m", "paragan", "train", "digits", *GRID, *words, "--out", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment(), cwd=folder.parent, start_new_session=True, **pipes)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def genomes(folder):
    """All that the newest checkpoint holds of the cells."""
    newest = max((folder / "checkpoints").glob("step-*"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(newest.glob("cell-*"))}


def generations(folder):
    record = folder / "metrics.jsonl"
    lines = record.read_text().splitlines() if record.exists() else []
    told = [json.loads(line) for line in lines if line.endswith("}")]
    return [line["generation"] for line in told if line["kind"] == "generation"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """In one process, this one, undisturbed."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(["train", "digits", *GRID, "--out", str(folder)]) == 0
    return genomes(folder)


def begin(started, folder, *more):
    process = train(folder, *more)
    started.append(process)
    return process


def crew(process, count):
    """The workers' processes, once they have played a generation."""
    wait_for(lambda: len(children(process.pid)) >= count, process, WAIT_S)
    return children(process.pid)


def finished(process, code=0):
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == code, out
    return out


def listens(pid):
    """Addresses on which a process waits for others, of both versions of IP (Linux)."""
    held = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in held:
                raw = bytes.fromhex(words[1].partition(":")[0])
                ip = socket.inet_ntop(socket.AF_INET, raw[::-1]) if len(raw) == 4 else f"::{raw.hex()}"
                found.append("127.0.0.1" if ip.endswith("ffff00000100007f") else ip)
    return found


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_evolve_what_one_process_does(started, tmp_path, expected, workers):
    process = begin(started, tmp_path / "run", f"workers={workers}")
    crew(process, workers)
    wait_for(lambda: len(generations(tmp_path / "run")) >= 1, process, WAIT_S)
    found = {address for pid in (process.pid, *children(process.pid)) for address in listens(pid)}
    assert found and all(address.startswith("127.") for address in found), found
    finished(process)
    assert genomes(tmp_path / "run") == expected and generations(tmp_path / "run") == list(range(1, 11))


def test_all_but_one_may_be_lost(started, tmp_path, expected):
    folder = tmp_path / "run"
    process = begin(started, folder, "workers=3")
    pids = crew(process, 3)
    for number, pid in enumerate(pids[:2]):
        wait_for(lambda seen=3 * number + 2: len(generations(folder)) >= seen, process, WAIT_S)
        os.kill(pid, signal.SIGKILL)
    finished(process)
    assert genomes(folder) == expected


def test_without_any_worker_the_run_ends_and_goes_on_later(started, tmp_path, expected):
    folder = tmp_path / "run"
    process = begin(started, folder, "workers=2", "every.save_kimg=0.1")
    pids = crew(process, 2)
    wait_for(lambda: len(generations(folder)) >= 5, process, WAIT_S)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert "all have failed" in finished(process, 75)
    finished(begin(started, folder, "workers=2", "every.save_kimg=0.1"))
    assert genomes(folder) == expected


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_coordinator_that_is_lost_is_resumed(started, tmp_path, expected, how):
    folder = tmp_path / "run"
    process = begin(started, folder, "workers=2", "every.save_kimg=0.1")
    pids = crew(process, 2)
    wait_for(lambda: len(generations(folder)) >= 5, process, WAIT_S)
    os.kill(process.pid, how)
    if how is signal.SIGSTOP:  # and continued: the workers were told nothing, and nobody is given up
        time.sleep(5)
        os.kill(process.pid, signal.SIGCONT)
        assert " failed: " not in finished(process)
    else:
        wait_for(lambda: not [pid for pid in pids if alive(pid)], seconds=WAIT_S)  # they notice, and end
        finished(begin(started, folder, "workers=1", "every.save_kimg=0.1"))  # on another number of workers
    assert genomes(folder) == expected
