"""A grid in `benchmarks.simulator_error`: its profile, its prediction, and a process of a real run.

Coordinator and workers are ranks of one launch, each on a host of its own. A worker's generation takes (its own time +
`DEVICE_MS` for each cell) times a lognormal number of mean 1: the worker sleeps before training for what is missing.
The same seconds are added to the profile, which is measured without them.

python -m benchmarks.simulated_grid_workers SECONDS_PER_CELL JITTER train RECIPE [key=value ...]
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from paragan import build
from paragan.cli.main import main
from paragan.coevolution.executors.loop import LoopExecutor
from paragan.coevolution.population import Population
from paragan.config import RunConfig, read_recipe
from paragan.runs.forecast_grid import grid_costs
from paragan.runs.profile_grid import measure_grid_profile
from paragan.scaling.cluster import Cluster, Interconnect, Link, Unevenness
from paragan.scaling.grid_profile import GridProfile
from paragan.scaling.profile import Curve
from paragan.scaling.simulated_grid import SimulatedGrid, mean_seconds
from tests.shaped_hosts import run_ranks, shaped_hosts

RECIPE = "digits"
WORDS = (
    *("grid.shape=2x2", "grid.executor=loop", "grid.batches=8", "train.batch=8"),
    *("grid.fitness.num_images=32", "grid.mixture.num_images=0", "evaluation.features=null"),
    *("every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=1000"),
)
DEVICE_MS = 600.0  # of a cell in a generation
GENERATIONS, WARM_UP, SIMULATED = 24, 4, 2000
LENGTH = f"train.kimg={GENERATIONS * 8 * 8 / 1000:g}"
COORDINATOR = "coordinator=10.78.0.1:29600"  # on the first of `shaped_hosts`


def config_of(words: Sequence[str] = ()) -> RunConfig:
    return read_recipe(RECIPE, [*WORDS, LENGTH, *words])


def grid_profile() -> GridProfile:
    """The profile of one process, with cells that take `DEVICE_MS` longer without a processor core."""
    config = config_of()
    profile = measure_grid_profile(config, RECIPE, build.open_data(config), lambda text: None)
    longer = {name: _longer(getattr(profile, name)) for name in ("train_s", "generation_s", "busy_s")}
    computed = profile.generation_s.values[0]
    return replace(profile, **longer, cpu_share=computed / (computed + DEVICE_MS / 1000))


def _longer(curve: Curve) -> Curve:
    added = [value + rows * DEVICE_MS / 1000 for rows, value in zip(curve.rows, curve.values, strict=True)]
    return replace(curve, values=tuple(added))


def predicted_grid(profile: GridProfile, workers: int, jitter: float, link: Link, cores: int, words=()) -> float:
    """Mean seconds of a generation, simulated."""
    network = Interconnect(link, link, workers_per_host=workers)
    cluster = Cluster(workers, network, cores=cores, unevenness=Unevenness(jitter=jitter))
    return mean_seconds(SimulatedGrid(grid_costs(config_of(words), profile), cluster).run(SIMULATED))


def measured_grid(workers: int, jitter: float, rate: str, folder: Path, limit_s: float, words=()) -> float:
    """Mean seconds of a generation of a real run, from its record."""
    program = ["-m", "benchmarks.simulated_grid_workers", str(DEVICE_MS / 1000), str(jitter)]
    settings = [*WORDS, LENGTH, COORDINATOR, *words]
    with shaped_hosts(workers + 1, rate) as hosts:
        run_ranks(hosts, [*program, "train", RECIPE, *settings, "--out", str(folder / "run")], folder, limit_s)
    record = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    ends = [line["seconds"] for line in record if line["kind"] == "step"]
    assert len(ends) == GENERATIONS, f"{len(ends)} generations in {folder}"
    cells = {line["generation"]: [one["cells"] for one in line["workers"]] for line in record if "workers" in line}
    if moved := [number for number in cells if cells[number] != cells[1]]:
        print(f"warning: cells moved in generations {moved}, since this machine was not quiet")
    return float(np.diff(ends)[WARM_UP - 1 :].mean())


class Slowdown:
    """Compute time that is injected into the workers of this process."""

    def __init__(self, device_s: float, jitter: float, seed: int) -> None:
        self.device_s = device_s
        self.jitter = jitter
        self.random = np.random.default_rng(seed)
        self.own_s = 0.0  # CPU time of the last generation

    def install(self) -> None:
        """Let every generation of a worker take longer."""
        evolve = Population.evolve
        train = LoopExecutor.train

        def timed(population):
            before = time.thread_time()
            done = evolve(population)
            self.own_s = time.thread_time() - before
            return done

        def slower(executor, cells, *given):
            factor = math.exp(self.jitter * self.random.standard_normal() - self.jitter**2 / 2)
            whole_s = (self.own_s + self.device_s * len(cells)) * factor
            time.sleep(max(0.0, whole_s - self.own_s))
            return train(executor, cells, *given)

        Population.evolve = timed
        LoopExecutor.train = slower


if __name__ == "__main__":
    Slowdown(float(sys.argv[1]), float(sys.argv[2]), int(os.environ.get("RANK", 0))).install()
    sys.exit(main(sys.argv[3:]))
