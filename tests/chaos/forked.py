"""Processes of a run as forks of one that has imported everything: what starting Python costs is paid once.

`popen` replaces `subprocess.Popen` in `core/local_processes.py`, and runs `python -m paragan WORDS`
in a fork. Everything else (sessions, signals, descriptors, exit codes) is as in a new process.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class ForkedProcess:
    """The part of `subprocess.Popen` that `LocalProcesses` uses."""

    stdin = stdout = None

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str] | None, stdout=None, stderr=None, pass_fds=(), before=None
    ) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(words, env, stdout, stderr, pass_fds, before)

    def poll(self) -> int | None:
        if self.returncode is None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(words, env, stdout, stderr, pass_fds, before) -> None:
    """Run the command in this fork, and end with its exit code; never returns."""
    code = 1
    try:
        os.setsid()
        for number in HANDLED:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for file, descriptor in ((stdout, 1), (stderr, 2)):
            if file is not None:
                os.dup2(file.fileno(), descriptor)
        _close_others({0, 1, 2, *pass_fds})
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        sys.argv = list(words)
        if before is not None:
            before()
        from paragan.cli.main import main

        code = main(words[1:])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _close_others(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def popen(command, env=None, stdin=None, stdout=None, stderr=None, start_new_session=True, pass_fds=()):
    """Start a command of the package as a fork, and anything else as it is."""
    if "paragan" in command and stdout != subprocess.PIPE:
        words = command[command.index("paragan") :]
        return ForkedProcess(words, env, stdout, stderr, pass_fds)
    options = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "start_new_session": start_new_session}
    return subprocess.Popen(command, env=env, pass_fds=pass_fds, **options)


def install() -> None:
    """From now on, in this process and its forks."""
    from paragan.core import local_processes

    names = {name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")}
    local_processes.subprocess = SimpleNamespace(Popen=popen, **names)
