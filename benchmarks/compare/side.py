"""One side of a comparison as a process: what it is, and steps on demand."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import Any

from benchmarks.compare.works import ROOT

TIMEOUT_S = 300  # of an import, and of a step


class Failed(Exception):
    """The process ended or does not respond."""


class Side:
    """A process of `benchmarks.compare.child`. Calling it takes a step; `seconds` of CPU so far."""

    def __init__(self, name: str, work: str, *words: str) -> None:
        self.seconds = 0.0
        command = [sys.executable, "-P", "-m", "benchmarks.compare.child", name, work, *words]
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=environment, text=True, bufsize=1, **pipes)
        try:
            self.found: dict[str, Any] = json.loads(self._read())
        except BaseException:
            self.close()
            raise

    def __call__(self) -> None:
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        self.seconds += float(self._read())

    def _read(self) -> str:
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise Failed("no response" if not ready else "the process ended")
        return line

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
