"""Process that scores checkpoints, as the trainer uses it: it never waits for an answer."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paragan.core.answering_processes import AnsweringProcesses
from paragan.core.files import create_subfolder
from paragan.core.local_processes import is_suspended
from paragan.evaluation.score import Score

_MAX_REPLY_BYTES = 1 << 22
_READ_BYTES = 1 << 16
_INVALID = "its process sent no valid reply"


class ScoringProcess:
    """One process that replies to requests in lines of JSON; started at a request if none runs.

    command, environment: of the process. log: file of its other output, in a folder that may not exist yet.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._processes = AnsweringProcesses()
        self._received = b""

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request. Raises `OSError` or `CheckpointError` if no process can be started."""
        if not self._processes.running:
            self._launch()
        pipe = self._processes.processes[0].stdin
        assert pipe is not None
        pipe.write(json.dumps(request).encode() + b"\n")
        pipe.flush()

    def receive(self) -> dict[str, Any] | None:
        """Return the reply to a request sent: `score` and `warnings`, or `error`; None: there is none yet."""
        with suppress(BlockingIOError):
            while len(self._received) <= _MAX_REPLY_BYTES:
                piece = os.read(self._output, _READ_BYTES)
                if not piece:
                    return self.end(f"its process {self._processes.exit_reason(0)}")
                self._received += piece
        if len(self._received) > _MAX_REPLY_BYTES:
            return self.end(_INVALID)
        line, newline, rest = self._received.partition(b"\n")
        if not newline:
            return None
        self._received = rest
        try:
            reply: dict[str, Any] = json.loads(line)
            return reply if "error" in reply else {**reply, "score": Score.from_values(reply["score"])}
        except (ValueError, KeyError, TypeError, AttributeError):
            return self.end(_INVALID)

    @property
    def is_suspended(self) -> bool:
        """Whether the process is suspended (SIGSTOP)."""
        return any(is_suspended(process.pid) for process in self._processes.running)

    def end(self, reason: str = "") -> dict[str, Any]:
        """Kill the process, if one runs; return this reason as a reply."""
        self._processes.kill()
        self._processes = AnsweringProcesses()
        self._received = b""
        return {"error": reason}

    def _launch(self) -> None:
        self.end()
        create_subfolder(self._log.parent.parent, self._log.parent.name)
        self._log.unlink(missing_ok=True)
        self._processes.start(self._command, self._environment, self._log, pipes=True)
        os.set_blocking(self._output, False)

    @property
    def _output(self) -> int:
        pipe = self._processes.processes[0].stdout
        assert pipe is not None
        return pipe.fileno()
