"""One process of one row: trains when it is told to, and says what it took.

`python -m paragan.cli._table1_rank JOB`; orders are lines of JSON on standard input, answers on standard output. It
ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch

from paragan import build
from paragan.config import load
from paragan.core.errors import outcome
from paragan.distributed.launch.join import join, leave
from paragan.distributed.launch.rank_env import here
from paragan.engine.trainer import Trainer


def serve(job: dict[str, Any], orders: TextIO, answer: Callable[[dict[str, Any]], None]) -> None:
    """Build the row's run, then one answer per order: `{"steps": n}` or `{"score": true}`."""
    torch.set_num_threads(1)
    config = load(job["recipe"], job["words"])
    world = join(here(), torch.device("cpu"), config.train.timeout_s, alone_group=job["joined"])
    trainer = build.trainer(config, Path(job["folder"]), lambda line: None, lambda: False, reading=True, world=world)
    answer({"ready": True})
    for line in orders:
        order = json.loads(line)
        answer(_trained(trainer, order["steps"]) if "steps" in order else _scored(trainer))
    leave(world)


def _trained(trainer: Trainer, steps: int) -> dict[str, Any]:
    """The losses are sums over the steps; what they are read with is no part of the time."""
    cpu, wall = time.process_time(), time.perf_counter()
    reports = [trainer.scheme.step(trainer.gan, trainer.batches) for _ in range(steps)]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    read = [report.read(trainer.world.sum) for report in reports]
    losses = {side: sum(value for seen in read for value in _losses(seen, side)) for side in ("d", "g")}
    return {"cpu_s": cpu, "wall_s": wall, "losses": losses}


def _losses(seen: dict[str, float], side: str) -> list[float]:
    """All terms of one player, as they are added up."""
    return [value for name, value in seen.items() if name.startswith(f"{side}/loss/")]


def _scored(trainer: Trainer) -> dict[str, Any]:
    """All ranks come here: a network that lies in pieces is called by all of them."""
    versions = {side: player.version for side, player in trainer.players.items()}
    if trainer.score is None:
        return {"updates": versions, "metrics": {}}
    metrics = trainer.score(trainer.players["g"], trainer.prior).metrics
    return {"updates": versions, "metrics": metrics}


def main() -> None:
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=told, flush=True)

    try:
        serve(json.loads(sys.argv[1]), sys.stdin, answer)
    except Exception as error:
        line = outcome(error)[1] or f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        answer({"error": line})
        raise


if __name__ == "__main__":
    main()
