"""What ranks leave behind, and what the launcher makes of it."""

import json
import os
from dataclasses import replace

import pytest

from paragan.config import read_recipe
from paragan.core.errors import PREEMPTED, ConfigError, PeerFailedError, RankError, StoppedError, outcome
from paragan.core.event import Event
from paragan.distributed.launch import exit_status, launcher, rank_env
from paragan.distributed.launch.launcher import Job
from paragan.distributed.launch.rank_env import RankEnv
from paragan.runs import start
from paragan.runs.folder import RunFolder
from paragan.runs.run_request import RunRequest
from paragan.writers.jsonl import RankWriter


def rank(number, size=2, attempt=0, run="x"):
    return RankEnv(rank=number, size=size, local_rank=number, local_size=size, attempt=attempt, run_id=run)


def leave_end(folder, number, error, attempt=0, run="x"):
    code, line = (0, "finished") if error is None else outcome(error)
    exit_status.write_rank_exit(folder, rank(number, 4, attempt, run), error, code, line or str(error))


def test_the_first_failure_of_the_last_attempt_counts(tmp_path):
    leave_end(tmp_path, 1, RankError("before"), attempt=0)
    leave_end(tmp_path, 0, PeerFailedError("rank 0 stopped because …", 2, 2), attempt=1)
    leave_end(tmp_path, 2, ConfigError("that one"), attempt=1)
    leave_end(tmp_path, 3, ConfigError("later"), attempt=1)
    assert exit_status.first_failure(exit_status.read_all(tmp_path, "x")).reason == "that one"
    assert exit_status.read_all(tmp_path, "y") == []
    assert exit_status.first_failure([]) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("no"), 2),
        (RankError("gone"), None),
        (StoppedError("early"), None),
        (TypeError("ours"), 1),
        (RuntimeError("shapes do not fit"), 1),
        (RuntimeError("[gloo] Connection closed by peer"), None),
        (OSError("a disk"), None),
        (BrokenPipeError(32, "Broken pipe"), 1),
        (None, None),
    ],
)
def test_what_cannot_be_helped_is_not_tried_again(tmp_path, error, code):
    leave_end(tmp_path, 1, error)
    assert exit_status.final_failure(tmp_path, rank(1, attempt=0)) is None
    assert exit_status.final_failure(tmp_path, rank(1, attempt=1, run="another")) is None
    found = exit_status.final_failure(tmp_path, rank(1, 4, attempt=1))
    assert (None if found is None else found.code) == code


def test_stop_of_an_elastic_launcher_that_restarts_on_other_ranks_is_not_final(tmp_path):
    exit_status.write_rank_exit(tmp_path, rank(1, 2), None, PREEMPTED, "the launcher has exited; saved")
    exit_status.write_rank_exit(tmp_path, rank(0, 2), None, PREEMPTED, "another rank was stopped; saved")
    assert exit_status.final_failure(tmp_path, rank(0, 1, attempt=1)) is None
    assert exit_status.final_failure(tmp_path, rank(0, 2, attempt=1)).code == PREEMPTED
    exit_status.write_rank_exit(tmp_path, rank(0, 1, attempt=1), None, PREEMPTED, "stopped by a signal; saved")
    assert exit_status.final_failure(tmp_path, rank(0, 2, attempt=1)) is None  # grows again


def test_a_first_attempt_forgets(tmp_path):
    leave_end(tmp_path, 1, ConfigError("of last week"), run="none")
    exit_status.remove_stale(tmp_path, rank(1, attempt=1, run="none"))
    assert exit_status.read_all(tmp_path, "none")
    exit_status.remove_stale(tmp_path, rank(1, run="none"))
    assert not exit_status.read_all(tmp_path, "none")


def test_strange_ends_are_passed_over(tmp_path):
    leave_end(tmp_path, 1, None)
    for number, text in enumerate(("", "[]", '{"rank": 1}', "[" * 100_000, '{"rank": "1"}')):
        (tmp_path / "ranks" / f"rank-{number + 2}.exit.json").write_text(text)
    assert [end.rank for end in exit_status.read_all(tmp_path, "x")] == [1]


@pytest.mark.parametrize(("attempt", "agent", "again"), [(0, 7, True), (0, 8, False), (1, 8, True)])
def test_fresh_is_meant_once_for_a_run(tmp_path, attempt, agent, again):
    """Users give torchrun the same id twice."""
    later = replace(rank(0, attempt=attempt), launcher_pid=agent)
    assert not exit_status.is_owned(tmp_path, later)
    exit_status.record_owner(tmp_path, replace(rank(0), launcher_pid=7))
    assert exit_status.is_owned(tmp_path, later) is again
    assert not exit_status.is_owned(tmp_path, replace(later, run_id="another"))


def test_a_rank_keeps_its_own_events(tmp_path):
    path, sent = tmp_path / "ranks" / "rank-1.jsonl", {"parameters": 8}
    for attempt in range(2):
        writer = RankWriter(path, {"rank": 1, "attempt": attempt}, sent)
        writer.write(
            Event(kind="start", step=0, images=0, seconds=0.1, values={"resumed": attempt > 0, "commands": {}})
        )
        writer.write(
            Event(
                kind="step",
                step=20,
                images=320,
                seconds=0.5,
                values={"images_per_s": 5.0, "data_wait": 0.1, "d/real": 1.0},
            )
        )
        writer.write(Event(kind="samples", step=20, images=320, seconds=0.6, values={"path": "x"}))
        writer.write(
            Event(kind="end", step=20, images=320, seconds=0.7, values={"code": 75, "reason": "rank 0 failed"})
        )
        writer.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(x["kind"], x["attempt"], x["rank"]) for x in lines] == [
        (kind, attempt, 1) for attempt in range(2) for kind in ("start", "step", "end")
    ]
    step = lines[1]
    assert (step["sent_bytes"], step["data_wait"], "d/real" in step) == ({"parameters": 8}, 0.1, False)


def job(folder, **changes):
    return Job(words=("train", "digits", "devices=3"), folder=folder, devices=3, timeout_s=10.0, lock_fd=0, **changes)


def test_the_environment_of_the_ranks(tmp_path, monkeypatch):
    def environment(outside, cores):
        monkeypatch.setattr(os, "environ", outside)
        monkeypatch.setattr(launcher, "num_cores", lambda: cores)
        return job(tmp_path).environment()

    shared = environment({"HOME": "/root"}, cores=8)
    unless_set = {"OMP_NUM_THREADS": "2", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    assert shared == {"HOME": "/root", **unless_set, rank_env.LAUNCHER: str(os.getpid()), rank_env.LOCK: "0"}
    assert environment({}, cores=2)["OMP_NUM_THREADS"] == "1"
    set_by_user = {"OMP_NUM_THREADS": "5", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    assert set_by_user.items() <= environment(set_by_user, cores=8).items()


@pytest.mark.parametrize(
    ("error", "asked", "code", "told"),
    [
        (ConfigError("g.micro_batches: no"), False, 2, "g.micro_batches: no\n"),
        (RankError("rank 1 failed"), False, 75, "rank 1 failed\n"),
        (RankError("did not join"), True, 85, ""),
        (TypeError("odd"), False, 1, "rank 1: odd; its traceback is in"),
        (None, False, 75, "no rank recorded why it ended"),
        (None, True, 85, "stopped before the first step\n"),
    ],
)
def test_what_the_user_hears(tmp_path, capsys, error, asked, code, told):
    if error is not None:
        leave_end(tmp_path, 1, error)
    assert launcher._report_failure(job(tmp_path), "x", asked) == code
    said = capsys.readouterr().err
    assert said.startswith(told) and bool(told) == bool(said) and said.count("\n") <= 1
    assert not (tmp_path / "exit.json").exists()  # there is no run here


@pytest.mark.parametrize("steps", [("40",), ("40", "80")])
def test_a_stopped_run_with_a_checkpoint_is_not_said_to_end_before_the_first_step(tmp_path, capsys, steps):
    """Ranks that hang as they stop are killed, and record nothing."""
    for step in steps:
        (tmp_path / "checkpoints" / f"step-{step:0>9}").mkdir(parents=True)
    assert launcher._report_failure(job(tmp_path), "x", True) == 85
    assert "the last checkpoint is intact" in capsys.readouterr().err


def test_a_run_whose_ranks_were_all_killed_gets_an_exit_json(tmp_path, capsys):
    (tmp_path / "config.yaml").touch()
    (tmp_path / "checkpoints" / "step-000000040").mkdir(parents=True)
    assert launcher._report_failure(job(tmp_path), "x", False) == 75
    left = json.loads((tmp_path / "exit.json").read_text())
    assert (left["code"], left["step"]) == (75, 40)
    leave_end(tmp_path, 0, ConfigError("another"))
    launcher._report_failure(job(tmp_path), "x", False)
    assert json.loads((tmp_path / "exit.json").read_text()) == left  # rank 0's own word stands


def test_more_processes_than_cores_start_with_a_warning(tmp_path, capsys, monkeypatch):
    launched = []
    monkeypatch.setattr(launcher, "launch_ranks", lambda job, interrupt: launched.append((job, interrupt)) or 7)
    monkeypatch.setattr(start, "_accelerators", lambda: 0)
    for name in ("LOCAL_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    config = read_recipe("digits", ["devices=999", "train.batch=999", "train.timeout_s=5"])
    words = ("devices=999",)
    assert (
        start.start_training(RunRequest(config=config, name="digits", out=tmp_path / "a", fresh=True, overrides=words))
        == 7
    )
    (made, interrupt) = launched[0]
    assert made.words == ("train", "digits", "devices=999", "--out", str(tmp_path / "a"), "--fresh")
    assert (made.devices, made.timeout_s, interrupt.patient) == (999, 5.0, True)
    assert "999 processes share" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"devices=999 is more than train\.batch=64"):
        start.start_training(
            RunRequest(config=read_recipe("digits", words), name="digits", out=tmp_path / "b", overrides=words)
        )


def test_all_accelerators_are_used_by_default(monkeypatch):
    monkeypatch.setattr(start, "_accelerators", lambda: 4)
    assert start.count_devices(read_recipe("digits")) == 4
    assert start.count_devices(read_recipe("digits", ["devices=1"])) == 1
    monkeypatch.setattr(start, "_accelerators", lambda: 0)
    assert start.count_devices(read_recipe("digits")) == 1


def test_the_log_of_the_run_to_come_is_not_set_aside(tmp_path):
    out = tmp_path / "run"
    (out / "ranks").mkdir(parents=True)
    for name in ("config.yaml", "ranks/launch.log", "ranks/rank-1.jsonl"):
        (out / name).write_text(name)
    aside = RunFolder(out).set_aside()
    assert [p.name for p in (out / "ranks").iterdir()] == ["launch.log"]
    assert [p.name for p in (aside / "ranks").iterdir()] == ["rank-1.jsonl"]
