"""A rank of `benchmarks.simulator_error`: trains some steps of a recipe with injected compute time.

An update takes (its own time + `device_ms`) times a lognormal number of mean 1: the rank sleeps
before it for what is missing. Prints the seconds of a step as JSON.

python -m benchmarks.simulated_ranks RECIPE STEPS DEVICE_MS JITTER [key=value ...]
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.dist import ALONE
from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import from_environment
from paragan.game.player import Player

WARM_UP = 6
QUIET = (
    *("every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=1000"),
    *("every.check_steps=0", "every.log_steps=1000"),
)


def slow_down(player: Player, device_s: float, jitter: float, seed: int) -> None:
    """Let each update take `device_s` longer, and all of it a random factor."""
    random = np.random.default_rng([seed, player.side.value == "g"])
    update = player.update
    own_s = 0.0

    def slower(*given, **named):
        nonlocal own_s
        factor = math.exp(jitter * random.standard_normal() - jitter**2 / 2)
        time.sleep(max(0.0, (own_s + device_s) * factor - own_s))
        before = time.thread_time()
        done = update(*given, **named)
        own_s = time.thread_time() - before
        return done

    player.update = slower


def main(recipe: str, steps: int, device_ms: float, jitter: float, words: list[str]) -> None:
    torch.set_num_threads(1)
    place = from_environment()
    world = ALONE if place is None else join(place, torch.device("cpu"), 120.0)
    config = read_recipe(recipe, [*QUIET, "evaluation.features=null", f"train.kimg={1000}", *words])
    with tempfile.TemporaryDirectory() as folder:
        trainer = build.trainer(config, Path(folder), lambda text: None, lambda: False, world=world)
        for player in trainer.players.values():
            slow_down(player, device_ms / 1000, jitter, int(os.environ.get("RANK", 0)))
        for _ in trainer.run(WARM_UP):
            pass
        world.barrier()
        sent = dict(world.sent)
        began = time.monotonic()
        for _ in trainer.run(steps):
            pass
        seconds = (time.monotonic() - began) / steps
        sent = {kind: (number - sent.get(kind, 0)) / steps for kind, number in world.sent.items()}
        trainer.scheme.close()
    print(json.dumps({"step_s": seconds, "sent": sent}), flush=True)
    destroy_groups(world)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
