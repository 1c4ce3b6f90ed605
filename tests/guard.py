"""Run a command; once standard input ends, kill it and everything below it, daemons too (Linux).

A test that is killed closes the pipe as well. Run as a script: `guard.py COMMAND …`.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

from processes import children, kill

PR_SET_CHILD_SUBREAPER = 36  # processes below whose parent ends become children of this one


def reap(*_: object) -> None:
    """Leave no child that has ended as a zombie."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, reap)  # a handler is not inherited, as an ignored signal would be
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    sys.stdin.read()
    while below := children(os.getpid()):
        for pid in below:
            kill(pid)
        time.sleep(0.05)
