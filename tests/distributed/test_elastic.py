"""An elastic torchrun: a run continues on fewer and on more hosts, here launchers on one host."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.processes import environment, wait_for
from tests.tiny_run import SMALL

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(500)]

WORDS = ("data.size=8", "train.batch=16", "train.kimg=24", "g.strategy=ddp", "d.strategy=ddp", "every.save_kimg=0.8")
QUIET = ("every.score_kimg=0", "every.sample_kimg=0", "evaluation.features=null")
CONF = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"


def start(out, port, log, is_host=False):
    """Start a launcher with one rank, in a session that can be killed whole."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"]
    command += ["--max-restarts=5", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=elastic"]
    command += [f"--rdzv-conf={CONF},is_host={str(is_host).lower()}", "-m", "paragan", "train", "digits"]
    command += [*SMALL, *WORDS, *QUIET, "--out", str(out)]
    variables = environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    return subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True)


def of_kind(out, *kinds):
    """The lines of the record of these kinds."""
    path = out / "metrics.jsonl"
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return [line for line in lines if line["kind"] in kinds]


def test_run_continues_on_one_rank_when_a_host_fails_and_on_two_when_one_joins(tmp_path):
    out = tmp_path / "run"
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]

    def trains_on(ranks):
        lines = of_kind(out, "start", "step")
        return lines[-1:] and lines[-1]["kind"] == "step" and of_kind(out, "start")[-1]["ranks"] == ranks

    launchers = []
    with (tmp_path / "log.txt").open("w") as log:
        try:
            launchers += [start(out, port, log, is_host=True), start(out, port, log)]
            wait_for(lambda: trains_on(2), launchers[0])
            os.killpg(launchers[1].pid, signal.SIGKILL)
            wait_for(lambda: trains_on(1), launchers[0])
            launchers.append(start(out, port, log))
            wait_for(lambda: trains_on(2), launchers[0])
            assert launchers[0].wait(200) == 0, (tmp_path / "log.txt").read_text()
        finally:
            for launcher in launchers:
                with suppress(ProcessLookupError):
                    os.killpg(launcher.pid, signal.SIGKILL)
                launcher.wait(10)
    sessions = of_kind(out, "start", "end")
    assert [line["ranks"] for line in sessions[-6::2]] == [2, 1, 2]
    ends = [line["step"] for line in sessions if line["kind"] == "end"]
    assert [line["step"] for line in sessions if line["kind"] == "start"] == [0, *ends[:-1]]
    steps = [line["step"] for line in of_kind(out, "step")]
    assert steps == sorted(set(steps)) and sessions[-1]["step"] == 1500
    assert json.loads((out / "exit.json").read_text())["code"] == 0
