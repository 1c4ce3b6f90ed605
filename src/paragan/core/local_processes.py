"""Child processes of this host: started, watched and ended together, without importing torch."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from paragan.core.errors import PREEMPTED
from paragan.core.files import open_regular_file, open_to_append
from paragan.core.interrupt import Interrupt

_PAUSE_S = 0.1
_KILL_S = 10.0  # a process that hangs in the kernel takes longer
_LINE_CHARACTERS = 200
_TAIL_BYTES = 1 << 16  # of a log, which may be long
_RESTORED = (signal.SIGINT, signal.SIGTERM)


class LocalProcesses:
    """Child processes, numbered from 0 in the order of their start.

    Leaving the `with` block kills those that run. Each leads a session: Ctrl-C at the terminal
    reaches only the parent. Each begins with the default handling of SIGINT and SIGTERM, also where
    the parent ignores them (`nohup`, a background job).
    """

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path | None] = []

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        *,
        prints: bool = False,
        pipes: bool = False,
        inherit: Sequence[int] = (),
    ) -> None:
        """Start one more process.

        environment: all of its variables; None: those of this process. log: a file to which its
        output is appended; None: it prints where this process does. prints: only errors go to the
        log. pipes: input and output are pipes of this process. inherit: file descriptors for it.
        """
        with ExitStack() as stack:
            file = None if log is None else stack.enter_context(open_to_append(log))
            stack.enter_context(_default_signals())
            output = None if prints else file
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=file,
                start_new_session=True,
                pass_fds=inherit,
            )
        self.processes.append(process)
        self._logs.append(log)

    @property
    def codes(self) -> list[int | None]:
        """Exit code by process: negative for the number of a signal, None for one that runs."""
        return [process.poll() for process in self.processes]

    @property
    def running(self) -> list[subprocess.Popen[bytes]]:
        """Processes that have not ended."""
        return [process for process in self.processes if process.poll() is None]

    @property
    def has_failed(self) -> bool:
        """Whether a process has ended other than with success or by a request to stop."""
        return any(code not in (None, 0, PREEMPTED) for code in self.codes)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of all processes; return whether they have ended within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        return not self.running

    def supervise(self, interrupt: Interrupt, exit_s: float, save_s: float) -> list[int]:
        """Wait for the end of all processes and return their exit codes.

        The first request to stop, or failure of a process, is forwarded to the others as SIGTERM.
        Killed are processes that run `save_s` after a request or the end of another, or `exit_s`
        after a failure; suspended ones at a failure; and all when the interrupt is aborted.
        """
        is_forwarded = False
        patience_s = deadline = math.inf
        while running := self.running:
            has_failed = self.has_failed
            is_ending = interrupt.requested or len(running) < len(self.processes)
            limit_s = save_s if is_ending else math.inf
            if has_failed:
                limit_s = exit_s
            if limit_s < patience_s:  # once for each reason, not at every look
                patience_s = limit_s
                deadline = min(deadline, time.monotonic() + limit_s)
            if not is_forwarded and (interrupt.requested or has_failed):
                is_forwarded = True
                for process in running:
                    process.send_signal(signal.SIGTERM)
            if interrupt.aborted or time.monotonic() > deadline:
                self.kill()
                break
            if has_failed:
                self.kill([process for process in running if is_suspended(process.pid)])
            time.sleep(_PAUSE_S)
        return [-signal.SIGKILL if code is None else code for code in self.codes]

    def kill(self, processes: Sequence[subprocess.Popen[bytes]] | None = None) -> None:
        """Kill these processes (None: all) with those of their session, and close their pipes."""
        chosen = self.processes if processes is None else processes
        for process in chosen:
            if process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        for process in chosen:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def exit_reason(self, number: int) -> str:
        """Return how a process has ended, or is about to, and its last log line, unless it was killed."""
        process = self.processes[number]
        log = self._logs[number]
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_S)
        is_killed = process.returncode == -signal.SIGKILL  # and could not write why
        last_line = "" if log is None or is_killed else _last_line(log)
        reason = describe_exit(process.returncode)
        return f"{reason}: {last_line}" if last_line else reason


def describe_exit(code: int | None) -> str:
    """Return how a process has ended, by the exit code of `subprocess.Popen`; None: it has not."""
    if code is None or code >= 0:
        return "is still running" if code is None else f"ended with exit code {code}"
    name = signal.strsignal(-code)
    reason = "; the system kills so when memory runs out" if code == -signal.SIGKILL else ""
    return f"was killed by signal {-code} ({name}{reason})"


def is_running(pid: int) -> bool:
    """Return whether a process of this host runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return _state(pid) not in "ZX"
    except ProcessLookupError:
        return False
    except (OSError, IndexError):  # another user's process, or a system without /proc
        return True


def is_suspended(pid: int) -> bool:
    """Return whether a process of this host is suspended (SIGSTOP): it can neither act nor end."""
    try:
        return _state(pid) in "Tt"
    except (OSError, IndexError):
        return False


def processes_with(path: Path) -> list[int]:
    """Return the other processes of this host that have a file open, as far as this one may see."""
    status = path.stat()

    def is_file(link: Path) -> bool:
        with suppress(OSError):  # closed meanwhile
            return os.path.samestat(link.stat(), status)
        return False

    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile, or of another user
            if folder.name != str(os.getpid()) and any(map(is_file, (folder / "fd").iterdir())):
                pids.append(int(folder.name))
    return pids


def catches_signal(pid: int, number: signal.Signals) -> bool:
    """Return whether a process of this host has installed a handler of a signal (Linux)."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (number - 1) & 1)
    return False


def _last_line(log: Path) -> str:
    with suppress(OSError, IndexError), open_regular_file(log) as file:  # deleted, or empty
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read().decode(errors="replace").strip().splitlines()[-1][:_LINE_CHARACTERS]
    return ""


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


@contextmanager
def _default_signals() -> Iterator[None]:
    """Handle ignored signals inside: a child inherits ignored ones and resets handled ones."""
    is_main = threading.current_thread() is threading.main_thread()
    # only the main thread may set signal handlers
    ignored = [n for n in _RESTORED if is_main and signal.getsignal(n) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
