"""Processes of a row: start, send requests, end. Every wait has a timeout."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragan.core.errors import ParaganError
from paragan.core.files import create_file
from paragan.distributed.launch.rank_env import create_store_file, rank_environment

_MODULE = "benchmarks.table1.rank"
_START_S, _STEP_S, _SCORE_S, _END_S = 300.0, 120.0, 1800.0, 15.0  # generous: the machine may be shared


class RowError(ParaganError):
    """A row cannot be measured on this machine; other rows may."""


@dataclass
class RowProcesses:
    """The processes of one row. settings: config overrides. distributed: form a process group even with one rank."""

    name: str
    recipe: str
    settings: tuple[str, ...]
    ranks: int
    distributed: bool
    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> None:
        """Start the processes without waiting for them."""
        job = {
            "recipe": self.recipe,
            "settings": self.settings,
            "distributed": self.distributed,
            "folder": str(self.folder),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        file, store = create_store_file()
        for rank in range(self.ranks):
            with create_file(self._log(rank)) as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", _MODULE, json.dumps(job)],
                        env=self._environment(rank, store),
                        pass_fds=(file,),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        start_new_session=True,  # Ctrl-C reaches only the parent, which ends them
                    )
                )
        os.close(file)

    def wait_ready(self) -> None:
        """Wait until the networks are built. Raises `RowError` with the reason if they cannot be."""
        self._receive_all(_START_S)

    def train(self, steps: int) -> list[dict[str, Any]]:
        """Reply of each rank: cpu_s, wall_s, losses (summed over the steps)."""
        return self._request({"steps": steps}, _START_S + _STEP_S * steps)

    def score(self) -> dict[str, Any]:
        """Updates and metrics so far."""
        return self._request({"score": True}, _SCORE_S)[0]

    def end(self) -> None:
        """Close the input of all processes and kill those that do not exit."""
        for process in self.processes:
            with suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
        for process in self.processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_S)
            process.stdout.close()  # type: ignore[union-attr]
        self.processes = []

    def _request(self, request: dict[str, Any], timeout_s: float) -> list[dict[str, Any]]:
        for process in self.processes:
            with suppress(OSError):  # an ended process has sent its error as its last reply
                print(json.dumps(request), file=process.stdin, flush=True)
        return self._receive_all(timeout_s)

    def _receive_all(self, timeout_s: float) -> list[dict[str, Any]]:
        deadline = time.monotonic() + timeout_s
        return [self._receive(rank, deadline) for rank in range(self.ranks)]

    def _receive(self, rank: int, deadline: float) -> dict[str, Any]:
        out = self.processes[rank].stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
        line = out.readline() if readable else ""  # a rank writes one whole line per request
        if not line:
            reason = self._exit_reason(rank) if readable else "no reply in time"
            raise RowError(f"{self.name}: {reason}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise RowError(f"{self.name}: {reply['error']}")
        return reply

    def _exit_reason(self, rank: int) -> str:
        """Exit code and last line of the log."""
        lines = self._log(rank).read_text(errors="replace").split("\n")
        last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"ended with exit code {self.processes[rank].wait(_END_S)}: {last_line[:200]}"

    def _environment(self, rank: int, store: str) -> dict[str, str]:
        """Environment of a rank. store: rendezvous of the ranks if there are several."""
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        return env if self.ranks == 1 else env | rank_environment(rank, self.ranks, store)

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.log"
