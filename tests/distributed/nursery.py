"""Where the ranks of all pools come from: one process that has imported what they need, and forks each of them.

`python -m tests.distributed.nursery SOCKET`. To import torch, FSDP2 and dynamo takes five seconds of a core; a session
starts some twenty ranks, and more after each case that failed on purpose.
"""

import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # starting Python may take long on a busy machine
KILLED = -signal.SIGKILL
LINUX = sys.platform.startswith("linux")


class Nursery:
    """Starts with the first rank, and anew should it be gone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def bear(self, words: list[Any], stdin: int, log: int, answers: int) -> int:
        """The process of a rank that was told these words, with these three descriptors; leads a group of its own."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        return self._ask({"bear": words}, [stdin, log, answers])

    def wait(self, pid: int) -> int:
        """The exit code of a rank that ends; negative: the signal that ended it."""
        gone = self._process is None or self._process.poll() is not None
        return KILLED if gone else self._ask({"wait": pid})

    def close(self) -> None:
        """What is left of its ranks ends with it."""
        if self._process is not None and self._line is not None:
            self._line.close()
            self._process.kill()
            self._process.wait()
            self._process = self._line = None

    def _start(self) -> None:
        self._line, theirs = socket.socketpair()
        self._line.settimeout(PATIENCE_S)
        paths = (str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))
        quiet = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.distributed.nursery", str(theirs.fileno())],
                **{"cwd": ROOT, "env": {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(filter(None, paths))}},
                **{"stdin": subprocess.DEVNULL, "pass_fds": (theirs.fileno(),), "start_new_session": True},
            )

    def _ask(self, question: dict[str, Any], descriptors: list[int] | None = None) -> int:
        assert self._line is not None
        socket.send_fds(self._line, [json.dumps(question).encode() + b"\n"], descriptors or [])
        heard = b""
        while not heard.endswith(b"\n"):
            data = self._line.recv(1 << 12)
            if not data:
                raise AssertionError("the process that ranks are forked from has ended")
            heard += data
        return int(heard)


def forked(line: socket.socket, words: list[Any], descriptors: list[int]) -> int:
    """The child goes the way of `member.main` and never comes back."""
    pid = os.fork()
    if pid == 0:
        try:
            line.close()
            os.setpgid(0, 0)
            stdin, log, answers = descriptors
            for given, own in ((stdin, 0), (log, 1), (log, 2)):
                os.dup2(given, own)
            os.close(stdin)
            os.close(log)
            rank, size, folder = words
            importlib.import_module("tests.distributed.member").main(rank, size, Path(folder), answers)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.setpgid(pid, pid)  # both do it: a rank is a group before anybody knows of it
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def serve(line: socket.socket) -> None:
    """Until who started it is gone."""
    while True:
        heard, descriptors, _, _ = socket.recv_fds(line, 1 << 16, 3)
        while heard and not heard.endswith(b"\n"):
            heard += line.recv(1 << 16)
        if not heard:
            return
        question = json.loads(heard)
        if "bear" in question:
            answer = forked(line, question["bear"], descriptors)
        else:
            try:
                answer = os.waitstatus_to_exitcode(os.waitpid(question["wait"], 0)[1])
            except ChildProcessError:  # of one before this one, with which it ended
                answer = KILLED
        line.sendall(b"%d\n" % answer)


def prepared() -> None:
    """Imports what most cases use; nothing that starts a thread, for a fork takes none along."""
    if not LINUX:  # elsewhere frameworks do not outlive a fork
        return
    from paragan import parallel

    for name in ("torch._dynamo", "torch.distributed.fsdp", "paragan.build", "tests.distributed.member"):
        importlib.import_module(name)
    for found in pkgutil.iter_modules(parallel.__path__):
        importlib.import_module(f"paragan.parallel.{found.name}")
    found = len(os.listdir("/proc/self/task"))
    assert found == 1, f"found {found} threads, expected one: ranks forked from here could wait for locks of the others"


if __name__ == "__main__":
    if LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: also while it waits for a rank
    prepared()
    serve(socket.socket(fileno=int(sys.argv[1])))
