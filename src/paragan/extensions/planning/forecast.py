"""Forecast of a run on a cluster: time, bytes, cost, and what the time is lost to.

Every number comes from simulated steps (`simulation.py`). Losses are differences between
simulations with the same random draws, to which one cause after the other is added, in a fixed
order; they add up to the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from paragan.core.errors import ConfigError
from paragan.extensions.planning.cluster import Cluster, Link
from paragan.extensions.planning.simulation import GameCosts, SimulatedTime

Scaling = Literal["weak", "strong"]
_NUM_STEPS = 200
_WARM_UP = 20
_FREE = Link(0.0, float("inf"))


@dataclass(frozen=True)
class Goal:
    """Length of a run, and how it scales.

    kimg: thousands of real images. scaling: `weak`: the batch grows with the workers; `strong`: it
    is that of one worker.
    """

    kimg: float
    scaling: Scaling = "weak"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A run on one number of workers.

    batch: of D, over all workers. step_s: mean seconds of a step. efficiency: images per second and
    worker, relative to one worker without network and jitter (weak: with the same rows; strong: with
    the whole batch). link_bytes: of a step over all links, by kind. hours: to the goal. losses: shares
    of the time in per cent, which add up to 100; `compute` is what one worker would need.
    """

    workers: int
    hosts: int
    batch: int
    step_s: float
    images_per_s: float
    efficiency: float
    link_bytes: Mapping[str, float]
    hours: float
    losses: Mapping[str, float]

    @property
    def needed_bytes_per_s(self) -> float:
        """Rate of each worker that sends a step's bytes in the time of the step's computation."""
        compute_s = self.step_s * self.losses["compute"] / 100
        return sum(self.link_bytes.values()) / self.workers / compute_s


def forecast(game: GameCosts, cluster: Cluster, goal: Goal, num_steps: int = _NUM_STEPS) -> Forecast:
    """Forecast one number of workers. game.batch: of one worker (weak), or of all (strong)."""
    batch = game.batch * cluster.workers if goal.scaling == "weak" else game.batch
    if batch < cluster.workers:
        raise ConfigError(f"{cluster.workers} workers share a batch of {batch}; pass train.batch={cluster.workers}")
    g_batch = None if game.g_batch is None else game.g_batch * batch // game.batch
    scaled = replace(game, batch=batch, g_batch=g_batch)
    even = replace(cluster, jitter=0.0)
    free = replace(even, network=replace(cluster.network, inside=_FREE, between=_FREE))
    single_s = _mean_step(game, replace(free, workers=1, cores=None), num_steps)
    compute_s = single_s * batch / game.batch / cluster.workers
    # each stage has all causes of loss of those before it, and one more: their differences add up to the whole step
    stages = {"imbalance": free, "communication": even, "jitter": cluster}
    steps_s = {cause: _mean_step(scaled, stage, num_steps) for cause, stage in stages.items()}
    step_s = steps_s["jitter"]
    before_s = [compute_s, *steps_s.values()]
    losses = {
        cause: 100 * (after - before) / step_s
        for (cause, after), before in zip(steps_s.items(), before_s, strict=False)
    }
    images = game.profile.batches_per_step * batch
    whole = SimulatedTime(game=scaled, cluster=cluster)
    whole.run(num_steps)
    return Forecast(
        workers=cluster.workers,
        hosts=cluster.hosts,
        batch=batch,
        step_s=step_s,
        images_per_s=images / step_s,
        efficiency=compute_s / step_s,
        link_bytes={kind: number / num_steps for kind, number in whole.bytes.items()},
        hours=goal.kimg * 1000 / images * step_s / 3600,
        losses={"compute": 100 * compute_s / step_s, **losses},
    )


def forecasts(
    game: GameCosts, cluster: Cluster, goal: Goal, counts: Sequence[int], num_steps: int = _NUM_STEPS
) -> tuple[Forecast, ...]:
    """Forecast several numbers of workers."""
    return tuple(forecast(game, replace(cluster, workers=count), goal, num_steps) for count in counts)


def _mean_step(game: GameCosts, cluster: Cluster, num_steps: int) -> float:
    """Return the mean seconds of simulated steps, without those of the start."""
    ends = SimulatedTime(game=game, cluster=cluster).run(num_steps + _WARM_UP)
    return float(np.diff(ends)[_WARM_UP - 1 :].mean())
