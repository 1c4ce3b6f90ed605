"""Whole command lines on two ranks: one console, one reason, and a run that goes on whoever is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paragan.checkpoint.writer import CheckpointWriter
from paragan.cli.main import main
from tests.processes import children, environment, wait_for

pytestmark = pytest.mark.distributed

SETTINGS = (
    "data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "train.timeout_s=60", "every.log_steps=5",
    "every.save_kimg=0.32", "every.sample_kimg=0", "every.score_kimg=0", "evaluation.features=null", "g.precision=fp32",
    "d.precision=fp32", "penalties=[]",
)  # fmt: skip
ODD_LOSS = '''
"""Does at one moment, on one rank, what MISCHIEF says; otherwise the plain loss."""
import os
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.losses.nonsaturating import d_loss as plain, g_loss

kind, _, where = os.environ.get("MISCHIEF", "none").partition(":")
moments = [tuple(map(int, moment.split("/"))) for moment in where.split(",") if moment]  # attempt/rank/call
here = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
calls = 0

def d_loss(*given):
    global calls
    calls += 1
    if (*here, calls) in moments:
        if kind == "kill":
            os.kill(os.getpid(), 9)
        raise ConfigError("d_loss: found mischief, expected none")
    return plain(*given)

loss = Loss(d_loss, g_loss)

def fsync(handle, whole=os.fsync):  # called for each file of a checkpoint that is being written
    whole(handle)
    if ".tmp-step" in os.readlink(f"/proc/self/fd/{handle}") and (*here, 0) in moments and calls:
        os.kill(os.getpid(), 9)

os.fsync = fsync
'''


def train(out, *words, under=("-m", "paragan"), devices=("devices=2",), **more):
    """The command line, in a process group of its own as a shell gives it one."""
    command = [sys.executable, *under, "train", "digits", *SETTINGS, *devices, *words, "--out", str(out)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment(**more), cwd=out.parent, start_new_session=True, **pipes)


def torchrun(out, *words, restarts=0, **more):
    under = ("-m", "torch.distributed.run", "--nproc-per-node=2", f"--max-restarts={restarts}", "-m", "paragan")
    return train(out, *words, under=under, devices=(), **more)


def newest(out):
    return max((p.name for p in (out / "checkpoints").glob("step-*")), default="")


def events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def left(out):
    return {n: json.loads((out / "ranks" / f"rank-{n}.exit.json").read_text()) for n in range(2)}


def same_weights(a, b):
    a, b = (CheckpointWriter(folder=out / "checkpoints").newest() for out in (a, b))
    assert a.step == b.step
    for group, tensors in a.groups.items():
        assert tensors.keys() == b.groups[group].keys()
        assert all(tensor.equal(b.groups[group][name]) for name, tensor in tensors.items())


@pytest.mark.slow
def test_a_run_on_two_ranks_has_one_console(tmp_path, started):
    out = tmp_path / "run"
    started.append(process := train(out, "train.kimg=0.16"))
    said, complaints = process.communicate(timeout=200)
    assert process.returncode == 0, said + complaints + (out / "ranks" / "launch.log").read_text()
    assert complaints == ""
    assert [said.count(word) for word in ("starting:", "finished: step 10")] == [1, 1]
    assert "\nranks     2 on 1 host: G ddp, D ddp; 8 of 16 images each\n" in said
    (start,) = (x for x in events(out / "metrics.jsonl") if x["kind"] == "start")
    assert (start["ranks"], start["hosts"], start["players"]["g"]["strategy"]) == (2, 1, "ddp")
    assert json.loads((out / "exit.json").read_text()) == {"code": 0, "step": 10, "reason": "finished"}
    assert json.loads((out / "environment.json").read_text())["ranks"] == 2
    assert "devices: 2" in (out / "config.yaml").read_text()
    clock = {(x["step"], x["kimg"]) for x in events(out / "metrics.jsonl") if x["kind"] == "step"}
    mine = events(out / "ranks" / "rank-1.jsonl")
    assert {(x["step"], x["kimg"]) for x in mine if x["kind"] == "step"} == clock == {(5, 0.08), (10, 0.16)}
    assert [x["kind"] for x in mine] == ["start", "step", "step", "end"]
    assert all((x["rank"], x["attempt"]) == (1, 0) for x in mine)
    assert {(n, end["code"], end["cause_rank"]) for n, end in left(out).items()} == {(0, 0, None), (1, 0, None)}
    assert not list(out.glob("ranks/rank-0.jsonl"))


_STOPS = {"ctrl-c": signal.SIGINT, "sigterm": signal.SIGTERM, "sighup": signal.SIGHUP, "sigusr1": signal.SIGUSR1}


@pytest.mark.chaos
@pytest.mark.parametrize(
    "how", ["ctrl-c", *(pytest.param(how, marks=pytest.mark.slow) for how in (*list(_STOPS)[1:], "launcher killed"))]
)
def test_a_request_to_stop_saves_this_step_on_all_ranks(tmp_path, started, capfd, how):
    out, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    started.append(process := train(out, "train.kimg=160", TMPDIR=str(scratch)))
    wait_for(lambda: newest(out) >= "step-000000020", process)
    if how == "launcher killed":
        below = children(process.pid)
        process.kill()
        wait_for(lambda: (out / "exit.json").exists())
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))  # nothing is tried again for long
        said = complaints = ""
    else:
        if how == "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(_STOPS[how])
        said, complaints = process.communicate(timeout=100)
        assert process.returncode == 85, said + complaints
        assert complaints == "stopping after this step; press Ctrl-C again to abort\n"
        assert said.count("stopped by a signal; saved") == 1
    ended = json.loads((out / "exit.json").read_text())
    assert (ended["code"], newest(out)) == (85, f"step-{ended['step']:09d}")
    assert (
        ended["reason"] == f"{'the launcher has exited' if how == 'launcher killed' else 'stopped by a signal'}; saved"
    )
    assert {end["code"] for end in left(out).values()} == {85}
    assert all(path.name.startswith("torchinductor") for path in scratch.iterdir())  # torch's cache
    assert events(out / "ranks" / "rank-1.jsonl")[-1]["step"] == ended["step"]
    if how == "ctrl-c":
        kimg = (ended["step"] + 5) * 16 / 1000
        capfd.readouterr()
        assert main(["train", "digits", *SETTINGS, "devices=1", f"train.kimg={kimg}", "--out", str(out)]) == 0
        assert f"resuming at step {ended['step']}" in capfd.readouterr().out
        assert newest(out) == f"step-{ended['step'] + 5:09d}"


@pytest.mark.slow
def test_first_failure_is_reported_once_and_not_retried(tmp_path, started):
    out = tmp_path / "run"
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "loss.py").write_text(ODD_LOSS)
    moments = ",".join(f"{attempt}/1/7" for attempt in range(4))
    started.append(process := train(out, "loss=odd.loss", "train.kimg=0.32", MISCHIEF=f"fail:{moments}"))
    said, complaints = process.communicate(timeout=200)
    assert (process.returncode, complaints) == (2, "d_loss: found mischief, expected none\n"), said
    assert "again" not in said and "Traceback" not in said
    ends = left(out)
    assert (ends[1]["cause_rank"], ends[0]["cause_rank"], ends[0]["code"]) == (None, 1, 2)
    assert ends[0]["attempt"] == 0  # later ones wrote nothing
    because = "rank 0 stopped because rank 1 failed: d_loss: found mischief, expected none"
    assert events(out / "metrics.jsonl")[-1]["reason"] == because
    assert json.loads((out / "exit.json").read_text())["code"] == 2


@pytest.mark.slow
@pytest.mark.chaos
def test_killed_ranks_are_replaced_unattended(tmp_path, started):
    """Under plain torchrun and without a variable that it needs: once in a step, once in a save.

    The restart trap: gloo must not find the addresses of the dead.
    """
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "loss.py").write_text(ODD_LOSS)
    words = ("loss=odd.loss", "train.kimg=0.8")
    started.append(process := torchrun(tmp_path / "killed", *words, restarts=2, MISCHIEF="kill:0/1/30,1/0/0"))
    said, complaints = process.communicate(timeout=280)
    assert process.returncode == 0, said + complaints
    assert said.count("resuming at step 20") == 2, said  # killed at 30, and in the save at 40
    assert "restarting from the last checkpoint: rank 1 failed" in said
    assert "restarting from the last checkpoint: rank 0 failed" in said
    attempts = [x["attempt"] for x in events(tmp_path / "killed" / "ranks" / "rank-1.jsonl") if x["kind"] == "start"]
    assert attempts == [0, 1, 2]
    started.append(straight := torchrun(tmp_path / "straight", *words))
    said, complaints = straight.communicate(timeout=200)
    assert straight.returncode == 0, said + complaints
    same_weights(tmp_path / "killed", tmp_path / "straight")


def by_hand(out, rank, port, *words, **more):
    """A rank as torchrun would start it, but nobody watches over it."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    told = {**{k: str(v) for k, v in place.items()}, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    return train(out, *words, devices=(), **told, **more)


def maps(process):
    return Path(f"/proc/{process.pid}/maps").read_text()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are read from /proc")
def test_rank_that_ends_while_gloo_threads_wait_for_a_processor_exits_with_0():
    child = Path(__file__).parent / "ends_with_groups.py"
    command = [sys.executable, str(child), "2"]
    made = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    assert made.stdout.strip() == "[0, 0]", made.stderr
