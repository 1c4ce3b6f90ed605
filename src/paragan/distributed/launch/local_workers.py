"""Worker processes of a grid on this host, started by its coordinator."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paragan.core.files import create_file, create_subfolder
from paragan.core.local_processes import LocalProcesses

_PATIENCE_S = 10.0


class LocalWorkers:
    """Worker processes of this host. They exit when the coordinator is unreachable.

    address: of the coordinator. environment: additional variables, which other users cannot read,
    unlike a command line. logs: folder of their output.
    """

    def __init__(self, address: tuple[str, int], environment: Mapping[str, str], logs: Path) -> None:
        self.address = address
        self.logs = logs
        self._environment = {**os.environ, **environment}
        self._processes = LocalProcesses()

    def start(self, count: int) -> None:
        """Start `count` workers, each on a separate accelerator while there are enough."""
        create_subfolder(self.logs.parent, self.logs.name)
        address = f"{self.address[0]}:{self.address[1]}"
        for number in range(count):
            create_file(self._log(number)).close()
            words = ["worker", address, "--device", str(number)]
            command = [sys.executable, "-P", "-m", "paragan", *words]
            self._processes.start(command, self._environment, self._log(number))

    def failure(self) -> str:
        """Return why a worker has failed, by the last line of its output; empty if none has."""
        for number, code in enumerate(self._processes.codes):
            if code not in (None, 0):
                reason = self._processes.exit_reason(number)
                return f"worker {number + 1} {reason}; see {self._log(number)}"
        return ""

    def kill(self, about: Mapping[str, Any]) -> None:
        """Kill a worker that hangs: it must not rejoin a run that continues without it."""
        pid = about.get("pid")
        self._processes.kill([process for process in self._processes.running if process.pid == pid])

    def shutdown(self) -> None:
        """Wait for workers that were dismissed, and kill the others."""
        self._processes.wait(_PATIENCE_S)
        self._processes.kill()

    def _log(self, number: int) -> Path:
        return self.logs / f"worker-{number + 1}.log"
