"""Scores by another process: what training sees of it, and what is left when it, or training, is killed."""

import errno
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from paragan.checkpoint.reader import read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.layout import Pieces
from paragan.core.local_processes import is_running
from paragan.engine.background_scores import BackgroundScores
from paragan.evaluation.scoring_process import ScoringProcess
from paragan.report.record import Record
from tests.processes import ROOT, running, wait_for

# Stands in for `runs/score_checkpoints.py`: the fd is by the step of the folder, and `words` may change the reply.
STAND_IN = """
import json, sys, time
values = {"num_images": 10, "protocol": {"by": "hand"}, "directions": {"fd": -1}}
for line in sys.stdin:
    step = int(json.loads(line)["checkpoint"][-9:])
    score = {"fd": {2: 3.0, 4: 1.5, 6: 2.5}.get(step, 9.0), "intervals": {"fd": [1.0, 2.0]}, **values}
    reply = {"score": score, "warnings": ["warning: the extractor is rough"]}
    %s
    print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def begin(tmp_path):
    """A function that starts what scores a run; `words` run before each reply."""
    found = []

    def begin(words="", timeout_s=60.0):
        command = (sys.executable, "-c", STAND_IN % words)
        process = ScoringProcess(command, dict(os.environ), tmp_path / "background" / "log.txt")
        found.append(process)
        return BackgroundScores(run=tmp_path, process=process, timeout_s=timeout_s)

    yield begin
    for process in found:
        process.end()


def saved(folder, step):
    """A checkpoint of this step."""
    clock = {"clock": {"step": step, "images": 100 * step}}
    return CheckpointWriter(folder=folder / "checkpoints", keep=1).save(step, {"g": Pieces({})}, clock)


def request(scores, step):
    return list(scores.request(saved(scores.run, step), step, 100 * step))


def wait(scores, count=1, is_end=True):
    """The events until there are as many, or no score is due."""
    found = []
    wait_for(lambda: found.extend(scores.events(is_end)) or len(found) >= count or not scores.is_busy, seconds=30)
    return found


def texts(events):
    return [event.values["text"] for event in events if event.kind == "event"]


def pid(scores):
    return scores.process._processes.processes[0].pid


def test_score_is_an_event_of_its_checkpoint_and_decides_the_best(begin, tmp_path):
    scores = begin()
    assert request(scores, 2) == []
    saved(tmp_path, 3)  # prunes the checkpoint of step 2
    warning, event = wait(scores, 2)
    assert warning.values["text"] == "warning: the extractor is rough"
    assert (event.kind, event.step, event.images, event.repeat_s) == ("score", 2, 200, 0.0)
    assert (event.values["fd"], event.values["evaluation_mode"]) == (3.0, "background")
    assert event.values["intervals"] == {"fd": [1.0, 2.0]}
    assert not scores.is_busy and not list((tmp_path / "background").glob("step-*"))
    assert read_checkpoint(tmp_path / "best").step == 2
    for step, best in ((4, 4), (6, 4)):
        request(scores, step)
        assert [event.kind for event in wait(scores)] == ["score"]  # the warning is not repeated
        assert read_checkpoint(tmp_path / "best").step == best


def test_score_that_is_due_while_another_is_computed_waits_for_the_newest(begin, tmp_path):
    scores = begin("time.sleep(0.3)")
    assert request(scores, 2) == request(scores, 4) == []
    assert texts(request(scores, 6)) == ["the score of step 4 is skipped: a newer checkpoint waits"]
    assert scores.has(2) and scores.has(6) and not scores.has(4)
    found = wait(scores, 9)
    assert [event.step for event in found if event.kind == "score"] == [2, 6]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "was killed by signal 9 (Killed; the system kills so when memory runs out)"),
        (signal.SIGSEGV, "was killed by signal 11 (Segmentation fault): a warning of an extractor"),
        (signal.SIGABRT, "was killed by signal 6 (Aborted): a warning of an extractor"),
    ],
)
def test_process_that_is_killed_costs_its_score_only_and_the_reason_is_reported(begin, tmp_path, number, reason):
    scores = begin("print('a warning of an extractor', file=sys.stderr, flush=True); time.sleep(1 if step == 2 else 0)")
    request(scores, 2)
    wait_for((tmp_path / "background" / "log.txt").read_text)
    os.kill(pid(scores), number)
    assert texts(wait(scores)) == [f"warning: the score of step 2 failed: its process {reason}; training continues"]
    request(scores, 4)
    assert [event.step for event in wait(scores, 2) if event.kind == "score"] == [4]


def test_process_whose_log_was_deleted_costs_its_score_only(begin, tmp_path):
    scores = begin("raise SystemExit('no memory')")
    request(scores, 2)
    (tmp_path / "background" / "log.txt").unlink()
    text = "warning: the score of step 2 failed: its process ended with exit code 1; training continues"
    assert texts(wait(scores)) == [text]


def test_process_that_is_suspended_is_reported_once_and_may_continue(begin):
    scores = begin("time.sleep(0.1)")
    request(scores, 2)
    os.kill(pid(scores), signal.SIGSTOP)
    scores._next_look = 0.0
    text = "warning: the process that computes the score of step 2 is suspended (SIGSTOP); training continues"
    assert texts(wait(scores, is_end=False)) == [text]
    scores._next_look = 0.0
    assert list(scores.events()) == []
    os.kill(pid(scores), signal.SIGCONT)
    assert [event.kind for event in wait(scores, 2)] == ["event", "score"]


def test_process_that_is_suspended_does_not_hold_the_end_of_a_run(begin):
    scores = begin("time.sleep(0.1)")
    request(scores, 2)
    request(scores, 4)
    os.kill(pid(scores), signal.SIGSTOP)
    found = wait(scores, 9)
    assert "its process is suspended (SIGSTOP), and the run has ended" in texts(found)[0]
    assert [event.step for event in found if event.kind == "score"] == [4]  # by a new process


@pytest.mark.parametrize(
    ("words", "timeout_s", "reason"),
    [
        ("time.sleep(60)", 0.2, "no answer within 0.2 s"),
        ("raise SystemExit('no memory')", 60.0, "its process ended with exit code 1: no memory"),
        ("raise MemoryError('64 GiB')", 60.0, "its process ended with exit code 1: MemoryError: 64 GiB"),
        ("reply = {'error': 'generated images are not finite'}", 60.0, "generated images are not finite"),
        ("reply = {'score': {'metrics': 1}}", 60.0, "its process sent no valid reply"),
        ("reply = []", 60.0, "its process sent no valid reply"),
        ("print('x' * (1 << 23))", 60.0, "its process sent no valid reply"),
    ],
    ids=["silent", "ended", "raised", "error", "no score", "no map", "endless"],
)
def test_process_without_a_score_is_reported(begin, words, timeout_s, reason):
    scores = begin(words, timeout_s)
    request(scores, 2)
    assert texts(wait(scores)) == [f"warning: the score of step 2 failed: {reason}; training continues"]
    assert not scores.is_busy and not list((scores.run / "background").glob("step-*"))


def test_full_disk_costs_the_score_only(begin, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    scores = begin()
    for name in ("paragan.checkpoint.writer.link_or_copy", "paragan.evaluation.scoring_process.create_subfolder"):
        with monkeypatch.context() as patch:
            patch.setattr(name, full)
            found = request(scores, 2)
        assert texts(found) == ["warning: the score of step 2 failed: no space left on the device; training continues"]
        assert not scores.is_busy


def test_resume_requests_what_is_due_and_not_recorded(begin, tmp_path):
    scores = begin("time.sleep(60)")
    for step in (2, 4, 8):
        request(scores, step)
        scores._tasks.clear()
    scores.process.end()
    scores.reserve(6)  # killed before the links
    saved(tmp_path, 6)
    scores.reserve(7)  # killed before the checkpoint
    lines = ({"kind": "score", "step": 2}, {"kind": "step", "step": 4}, {"kind": "score"})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    resumed = begin()
    assert list(resumed.resume(6)) == []
    assert [resumed.has(step) for step in (2, 4, 6, 7, 8)] == [True, True, True, False, False]
    found = wait(resumed, 9)
    assert [(event.step, event.images) for event in found if event.kind == "score"] == [(4, 400), (6, 600)]
    assert not list((tmp_path / "background").glob("step-*"))


CHILD = "from paragan.core.answering_processes import requests\nfor _ in requests({parent}): pass"
PARENT = f"""
import os, sys, time
from paragan.core.answering_processes import AnsweringProcesses
child = {CHILD!r}.format(parent=os.getpid())
processes = AnsweringProcesses()
processes.start((sys.executable, "-c", child), pipes=True)
print(processes.processes[0].pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a suspended process ends with its parent on Linux only")
@pytest.mark.parametrize("is_suspended", [False, True])
def test_process_ends_with_a_killed_trainer(is_suspended):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with running([sys.executable, "-c", PARENT], stdout=-1, env=environment) as parent:
        child = int(parent.stdout.readline())
        status = Path(f"/proc/{child}/status")
        wait_for(lambda: "Threads:\t2" in status.read_text(), parent)  # it reads requests
        if is_suspended:
            os.kill(child, signal.SIGSTOP)
        parent.kill()
        parent.wait(30)
        wait_for(lambda: not is_running(child), seconds=30)


def test_record_places_a_late_score_where_its_checkpoint_was_saved(tmp_path):
    late = {"kind": "score", "fd": 2.0, "evaluation_mode": "background", "protocol": {}, "num_images": 10}
    lines = (
        {"kind": "start", "step": 0, "kimg": 0.0, "seconds": 0.0},
        {"kind": "checkpoint", "step": 2, "kimg": 0.2, "seconds": 10.0, "path": "a"},
        {"kind": "step", "step": 5, "kimg": 0.5, "seconds": 30.0, "loss": 1.0},
        {**late, "step": 2, "kimg": 0.2, "seconds": 31.0},
    )
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = Record(path)
    record.read()
    history = record.history
    assert [(entry.step, entry.kimg, entry.seconds) for entry in history.scores] == [(2, 0.2, 10.0)]
    assert (history.step, history.kimg, history.seconds) == (5, 0.5, 31.0)
