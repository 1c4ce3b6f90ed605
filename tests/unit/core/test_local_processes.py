"""Child processes that are started, watched, answered by and ended together: small programs, real signals."""

import os
import signal
import subprocess
import sys
import time

import pytest

from paragan.core.answering_processes import AnsweringProcesses
from paragan.core.local_processes import LocalProcesses, is_running, is_suspended
from tests.processes import wait_for

WAIT_S = 60.0
ANSWER = """
import json, os, signal, sys, time
from paragan.core.answering_processes import reserve_output
reply, replies = reserve_output(), 3  # the first descriptor that was free
print("output of a library", flush=True)
for line in sys.stdin:
    message = json.loads(line)
"""


@pytest.fixture
def processes():
    with LocalProcesses() as found:
        yield found


def start(processes, code, **more):
    processes.start([sys.executable, "-c", code], **more)


def answering(folder, *codes):
    found = AnsweringProcesses()
    for number, code in enumerate(codes):
        start(found, ANSWER + code, log=folder / str(number), pipes=True)
    return found


def test_exit_codes_and_last_line_are_known_by_number(processes, tmp_path):
    log = tmp_path / "log"
    start(processes, "")
    start(processes, "import sys; print('first', flush=True); sys.exit('the reason')", log=log)
    assert processes.wait(WAIT_S)
    assert processes.codes == [0, 1] and processes.has_failed
    assert processes.exit_reason(1) == "ended with exit code 1: the reason"
    assert processes.exit_reason(0) == "ended with exit code 0"


def test_leaving_the_block_kills_processes_with_their_children(tmp_path):
    code = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '300']); print(child.pid, flush=True); child.wait()"
    )
    with LocalProcesses() as processes:
        start(processes, code, log=tmp_path / "log")
        wait_for(lambda: (tmp_path / "log").read_text().endswith("\n"))
        assert not processes.wait(0.01)
    assert processes.codes == [-signal.SIGKILL]
    wait_for(lambda: not is_running(int((tmp_path / "log").read_text())))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_that_the_parent_ignores_has_its_default_in_the_child(processes, tmp_path, number):
    """As under `nohup`, or for a background job of a script."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        start(processes, "import signal; print([signal.getsignal(2), signal.getsignal(15)])", log=tmp_path / "log")
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)
    assert processes.wait(WAIT_S)
    found = (tmp_path / "log").read_text()
    assert "SIG_DFL" in found and "SIG_IGN" not in found


def test_replies_come_in_the_order_of_the_processes(tmp_path):
    first = answering(
        tmp_path, "    time.sleep(0.1); reply({'found': message['n'] + 1})", "    reply({'found': message['n'] + 2})"
    )
    try:
        for n in range(2):
            assert first.request({"n": n}, WAIT_S) == [{"found": n + 1}, {"found": n + 2}]
    finally:
        first.kill()


def test_process_that_ends_or_stops_within_a_reply_yields_an_error(tmp_path):
    half = "    os.write(replies, b'{'); os.kill(os.getpid(), signal.SIGSTOP)"
    broken = answering(tmp_path, "    reply({'n': 1})", "    sys.exit('why')", half)
    try:
        began = time.monotonic()
        found = broken.request({"n": 0}, WAIT_S, grace_s=0.3)
        assert time.monotonic() - began < WAIT_S
        assert found[0] == {"n": 1}
        assert found[1] == {"error": "ended with exit code 1: why"}
        assert found[2]["error"].startswith("timeout: no answer within")
    finally:
        broken.kill()
    assert not broken.running


def test_suspended_process_is_recognised(processes):
    start(processes, "import os; os.kill(os.getpid(), 19)")
    pid = processes.processes[0].pid
    wait_for(lambda: is_suspended(pid))
    assert is_running(pid)
    processes.kill()
    assert not is_suspended(pid)


def test_process_that_has_ended_and_is_not_read_is_not_running():
    zombie = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    zombie.stdout.read()
    for _ in range(1000):
        if not is_running(zombie.pid):
            break
        signal.sigtimedwait([], 0.01)
    assert not is_running(zombie.pid)
    zombie.wait(30)
    zombie.stdout.close()
    assert is_running(os.getpid())
