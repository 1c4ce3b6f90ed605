"""One process of one row: trains and scores on request and reports the time it took.

`python -m benchmarks.table1.rank JOB`: requests are lines of JSON on standard input, replies are lines of JSON on
standard output. The process ends when its input is closed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.answering_processes import reserve_output
from paragan.core.errors import outcome
from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import from_environment
from paragan.engine.training_loop import TrainingLoop


def serve(job: dict[str, Any], requests: TextIO, reply: Callable[[dict[str, Any]], None]) -> None:
    """Build the row's trainer, then send one reply per request: `{"steps": n}` or `{"score": true}`."""
    torch.set_num_threads(1)
    config = read_recipe(job["recipe"], job["settings"])
    world = join(from_environment(), torch.device("cpu"), config.train.timeout_s, alone_group=job["distributed"])
    trainer = build.trainer(config, Path(job["folder"]), lambda line: None, lambda: False, reading=True, world=world)
    reply({"ready": True})
    for line in requests:
        request = json.loads(line)
        reply(train(trainer, request["steps"]) if "steps" in request else score(trainer))
    destroy_groups(world)


def train(trainer: TrainingLoop, steps: int) -> dict[str, Any]:
    """Time of `steps` steps and the losses summed over them. Reading the losses is not timed."""
    cpu_start = time.process_time()
    wall_start = time.perf_counter()
    reports = [trainer.scheme.step(trainer.gan, trainer.batches) for _ in range(steps)]
    cpu_s = time.process_time() - cpu_start
    wall_s = time.perf_counter() - wall_start
    values = [report.read(trainer.world.sum) for report in reports]
    losses = {side: sum(_loss(step_values, side) for step_values in values) for side in ("d", "g")}
    return {"cpu_s": cpu_s, "wall_s": wall_s, "losses": losses}


def score(trainer: TrainingLoop) -> dict[str, Any]:
    """Updates and metrics so far. Collective: every rank must call this, because networks may be sharded."""
    versions = {side: player.version for side, player in trainer.players.items()}
    if trainer.score is None:
        return {"updates": versions, "metrics": {}}
    metrics = trainer.score(trainer.players["g"], trainer.prior).metrics
    return {"updates": versions, "metrics": metrics}


def _loss(values: dict[str, float], side: str) -> float:
    """Sum of all loss terms of one player."""
    return sum(value for name, value in values.items() if name.startswith(f"{side}/loss/"))


def main() -> None:
    """Serve the job named on the command line; errors are sent as a reply, too."""
    reply = reserve_output()
    try:
        serve(json.loads(sys.argv[1]), sys.stdin, reply)
    except Exception as error:
        first_line = str(error).partition("\n")[0][:200]
        reply({"error": outcome(error)[1] or f"{type(error).__name__}: {first_line}"})
        raise


if __name__ == "__main__":
    main()
