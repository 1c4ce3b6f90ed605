"""Worker processes of a grid on this host, started by its coordinator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paragan.core.files import create_file, create_subfolder

_PATIENCE_S = 10.0


class LocalWorkers:
    """Worker processes of this host.

    address: where their coordinator listens. environment: additional variables, which unlike a
    command line other users cannot read. logs: folder of their output. They exit when the coordinator is unreachable.
    """

    def __init__(self, address: tuple[str, int], environment: Mapping[str, str], logs: Path) -> None:
        self.address, self.logs = address, logs
        self._environment = {**os.environ, **environment}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        """Start `count` more workers."""
        create_subfolder(self.logs.parent, self.logs.name)
        for _ in range(count):
            with create_file(self.logs / f"worker-{len(self._processes) + 1}.log") as log:
                command = [sys.executable, "-P", "-m", "paragan", "worker", f"{self.address[0]}:{self.address[1]}"]
                command += [
                    "--device",
                    str(len(self._processes)),
                ]  # each an accelerator of its own, as far as there are
                process = subprocess.Popen(
                    command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the coordinator, which sends them home
                )
                self._processes.append(process)

    def failure(self) -> str:
        """The last output line of a failed worker; empty if none has failed."""
        for number, process in enumerate(self._processes, start=1):
            if process.poll() not in (None, 0):
                log = self.logs / f"worker-{number}.log"
                last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["without a word"]
                return f"worker {number} ended with code {process.returncode} ({last[0][:200]}); see {log}"
        return ""

    def kill(self, about: Mapping[str, Any]) -> None:
        """Kill a worker that is suspended or hangs: it must not rejoin a run that continues without it."""
        for process in self._processes:
            if process.pid == about.get("pid") and process.poll() is None:
                with suppress(OSError):
                    process.send_signal(signal.SIGKILL)

    def shutdown(self) -> None:
        """Wait for workers that were dismissed, and kill the others."""
        deadline = time.monotonic() + _PATIENCE_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait(_PATIENCE_S)
