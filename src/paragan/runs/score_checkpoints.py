"""Process that scores checkpoints of a run for its trainer (`evaluation.mode: background`).

`python -m paragan.runs.score_checkpoints RUN THREADS PARENT`: a request names the folder of a
checkpoint, the reply has its score, or the reason why it has none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragan.core.answering_processes import requests, reserve_output
from paragan.core.errors import outcome

if TYPE_CHECKING:
    from paragan.config import RunConfig
    from paragan.engine.training_loop import TrainingLoop

_LOWEST_PRIORITY = 19


class _Scorer:
    """The trainer of a run, opened at the first request to score its checkpoints."""

    def __init__(self, run: Path, threads: int) -> None:
        self._run = run
        self._threads = threads
        self._warnings: list[str] = []

    def reply_to(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the score of a checkpoint, with all warnings so far, or an error."""
        from paragan.checkpoint.reader import read_checkpoint
        from paragan.hardware.deterministic import deterministic_kernels

        try:
            with deterministic_kernels(self._config.train.deterministic):
                trainer = self._trainer
                trainer.resume_from(read_checkpoint(Path(request["checkpoint"])))
                return {"score": trainer.compute_score().values, "warnings": self._warnings}
        except Exception as error:
            _, reason = outcome(error)
            return {"error": reason or f"{type(error).__name__}: {error}"}

    @cached_property
    def _config(self) -> RunConfig:
        from paragan.config import read_recipe
        from paragan.config.sections import ANY

        return read_recipe(str(self._run / "config.yaml"), [f"train.threads={self._threads}"], ANY)

    @cached_property
    def _trainer(self) -> TrainingLoop:
        from paragan import build

        return build.trainer(self._config, self._run, self._log, stop=lambda: False, reading=True)

    def _log(self, line: str) -> None:
        with suppress(OSError):  # a full disk
            print(line, file=sys.stderr, flush=True)
        if line.startswith("warning:") and line not in self._warnings:
            self._warnings.append(line)


def main(run: str, threads: str, parent: str) -> None:
    """Score checkpoints until the parent process ends."""
    reply = reserve_output()
    with suppress(OSError):
        os.nice(_LOWEST_PRIORITY)
    scorer = _Scorer(Path(run), int(threads))
    for request in requests(int(parent)):
        reply(scorer.reply_to(request))


if __name__ == "__main__":
    main(*sys.argv[1:])
