"""Stopping on request, with real signals in a real process."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import paragan
from paragan.__main__ import entry
from paragan.core import interrupt
from tests.processes import running

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(paragan.__file__).parents[1])}

LOOP = """
import sys, time
from paragan.core.interrupt import install
with install() as stop:
    print("ready", flush=True)
    while not stop.requested:
        time.sleep(0.01)
    print("torch" in sys.modules, flush=True)
    sys.stdin.readline()
print("left", flush=True)
"""


@contextmanager
def looping(**more):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with running([sys.executable, "-c", LOOP], env=ENVIRONMENT, **pipes, **more) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


@pytest.fixture
def loop():
    with looping() as process:
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_first_signal_requests_a_stop_and_prints_a_line(loop, number):
    loop.send_signal(number)
    assert loop.stdout.readline() == "False\n"
    out, error = loop.communicate("\n", timeout=30)
    assert (out, error, loop.returncode) == ("left\n", "stopping after this step; press Ctrl-C again to abort\n", 0)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_after_that_aborts_at_once(loop, first):
    loop.send_signal(first)
    loop.stdout.readline()
    loop.send_signal(signal.SIGINT)
    out, _ = loop.communicate(timeout=30)
    assert (out, loop.returncode) == ("", -signal.SIGINT)


def test_a_scheduler_may_ask_twice(loop):
    for _ in range(2):
        loop.send_signal(signal.SIGTERM)
    loop.stdout.readline()
    loop.send_signal(signal.SIGTERM)
    out, error = loop.communicate("\n", timeout=30)
    assert (out, error.count("stopping"), loop.returncode) == ("left\n", 1, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_an_ignored_signal_stays_ignored_and_sigterm_works(number):
    """As under `nohup`, or in a background job of a script: before the first request and after it."""
    with looping(preexec_fn=lambda: signal.signal(number, signal.SIG_IGN)) as process:
        process.send_signal(number)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "False\n"
        process.send_signal(number)
        out, error = process.communicate("\n", timeout=30)
        assert (out, process.returncode, error.count("stopping")) == ("left\n", 0, 1)


IN_A_TERMINAL = """
import sys, time
from paragan.core.interrupt import install
with install() as stop, open(sys.argv[1], "w") as file:
    print("ready", flush=True)
    while not stop.requested:
        time.sleep(0.01)
    print("a line that no terminal shows", flush=True)
    print("another", file=sys.stderr, flush=True)
    file.write("saved")
"""


def test_a_terminal_that_closes_requests_a_stop_and_its_lines_fail_nothing(tmp_path):
    said = tmp_path / "said"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execve(sys.executable, [sys.executable, "-c", IN_A_TERMINAL, str(said)], ENVIRONMENT)
    said_there = b""
    while not said_there.endswith(b"\n"):  # a terminal hands out parts of a line
        said_there += os.read(terminal, 100)
    assert said_there == b"ready\r\n"
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert said.read_text() == "saved"


def test_leaving_gives_the_signals_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupt.install() as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("module", ["paragan.cli.main", "torch", "paragan.runs.start"])
def test_ctrl_c_while_modules_are_imported_ends_in_one_line(module, tmp_path):
    """The first seconds of a command are imports; a finder interrupts the one that is asked for."""
    code = f"""
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["paragan", "train", "digits"]
from paragan.__main__ import entry
entry()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1


@pytest.mark.parametrize(
    ("interrupted", "error"), [(True, "AttributeError"), (True, "ImportError"), (False, "OSError")]
)
def test_ctrl_c_that_an_import_swallows_ends_in_one_line(interrupted, error, tmp_path):
    """NumPy's compiled part goes on after Ctrl-C with half a module; what needs the rest fails."""
    code = f"""
import os, signal, sys
class Swallowing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            try:
                if {interrupted}:
                    os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass
            raise {error}("half a module")
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
sys.meta_path.insert(0, Swallowing())
sys.argv = ["paragan", "export", "runs/one"]
from paragan.__main__ import entry
entry()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == (130 if interrupted else 1)
    assert ("Traceback" in done.stderr) != interrupted
    assert done.stderr.endswith("interrupted\n" if interrupted else "OSError: half a module\n")


def test_the_entry_gives_the_handler_of_ctrl_c_back(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(sys, "argv", ["paragan", "list", "losses"])
        with pytest.raises(SystemExit, match="0"):
            entry()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
