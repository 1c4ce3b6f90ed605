"""Processes of a row: start, send requests, end. Every wait has a timeout."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragan.core.answering_processes import AnsweringProcesses, source_environment
from paragan.core.errors import ParaganError
from paragan.distributed.launch.rank_env import create_store_file, rank_environment

_MODULE = "benchmarks.table1.rank"
_START_S, _STEP_S, _SCORE_S = 300.0, 120.0, 1800.0  # generous: the machine may be shared


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
    processes: AnsweringProcesses = field(default_factory=AnsweringProcesses)

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
        command = [sys.executable, "-P", "-m", _MODULE, json.dumps(job)]
        for rank in range(self.ranks):
            several = {} if self.ranks == 1 else rank_environment(rank, self.ranks, store)
            environment = source_environment() | several
            self.processes.start(command, environment, self.folder / f"rank-{rank}.log", pipes=True, inherit=(file,))
        os.close(file)

    def wait_ready(self) -> None:
        """Wait until the networks are built. Raises `RowError` with the reason if they cannot be."""
        self._request(None, _START_S)

    def train(self, steps: int) -> list[dict[str, Any]]:
        """Reply of each rank: cpu_s, wall_s, losses (summed over the steps)."""
        return self._request({"steps": steps}, _START_S + _STEP_S * steps)

    def score(self) -> dict[str, Any]:
        """Updates and metrics so far."""
        return self._request({"score": True}, _SCORE_S)[0]

    def end(self) -> None:
        """End all processes."""
        self.processes.kill()

    def _request(self, message: dict[str, Any] | None, timeout_s: float) -> list[dict[str, Any]]:
        replies = self.processes.request(message, timeout_s)
        error = next((reply["error"] for reply in replies if "error" in reply), None)
        if error is not None:
            raise RowError(f"{self.name}: {error}")
        return replies
