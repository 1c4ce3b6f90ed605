"""A row's processes, from outside: started, ordered about, and ended. Every wait has an end."""

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
from paragan.core.files import new_file
from paragan.distributed.launch.rank_env import environment, open_store

_MODULE = "paragan.cli._table1_rank"
_START_S, _STEP_S, _SCORE_S, _END_S = 300.0, 120.0, 1800.0, 15.0  # on a machine that others use, too


class RowError(ParaganError):
    """A row that cannot be measured here; the others can."""


@dataclass
class Running:
    """One row. words: of its config. ranks: its processes. joined: they form a group, even a single one."""

    name: str
    recipe: str
    words: tuple[str, ...]
    ranks: int
    joined: bool
    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> None:
        """Start its processes; `ready` waits for them."""
        job = {"recipe": self.recipe, "words": self.words, "joined": self.joined, "folder": str(self.folder)}
        self.folder.mkdir(parents=True, exist_ok=True)
        file, store = open_store()
        for rank in range(self.ranks):
            with new_file(self._log(rank)) as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", _MODULE, json.dumps(job)],
                        env=self._environment(rank, store),
                        pass_fds=(file,),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        start_new_session=True,  # Ctrl-C comes to the one who ends them
                    )
                )
        os.close(file)

    def ready(self) -> None:
        """Return once they have built their networks. `RowError` tells why one could not."""
        self._answers(_START_S)

    def train(self, steps: int) -> list[dict[str, Any]]:
        """The answer of each rank: cpu_s, wall_s, losses (sums over the steps)."""
        return self._asked({"steps": steps}, _START_S + _STEP_S * steps)

    def score(self) -> dict[str, Any]:
        """Updates so far and metrics."""
        return self._asked({"score": True}, _SCORE_S)[0]

    def end(self) -> None:
        """Let them go, and kill those that stay."""
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

    def _asked(self, order: dict[str, Any], limit_s: float) -> list[dict[str, Any]]:
        for process in self.processes:
            with suppress(OSError):  # one that is gone has told why
                print(json.dumps(order), file=process.stdin, flush=True)
        return self._answers(limit_s)

    def _answers(self, limit_s: float) -> list[dict[str, Any]]:
        deadline = time.monotonic() + limit_s
        return [self._answer(rank, deadline) for rank in range(self.ranks)]

    def _answer(self, rank: int, deadline: float) -> dict[str, Any]:
        out = self.processes[rank].stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
        line = out.readline() if ready else ""  # they write whole lines, one per order
        if not line:
            why = self._last_words(rank) if ready else "no answer in time"
            raise RowError(f"{self.name}: {why}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise RowError(f"{self.name}: {found['error']}")
        return found

    def _last_words(self, rank: int) -> str:
        lines = self._log(rank).read_text(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"ended with exit code {self.processes[rank].wait(_END_S)}: {said[:200]}"

    def _environment(self, rank: int, store: str) -> dict[str, str]:
        """store: where the ranks meet, if there are several."""
        path = os.pathsep.join(place or os.getcwd() for place in sys.path)
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        return env if self.ranks == 1 else env | environment(rank, self.ranks, store)

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.log"
