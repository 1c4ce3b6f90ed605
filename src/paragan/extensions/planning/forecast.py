"""The profile and the forecast of a recipe: what one worker was measured to do, and many would.

Every number of a forecast comes from simulated steps (`simulation.py`). Losses are differences between
simulations with the same random draws, to which one cause after the other is added, in a fixed
order; they add up to the whole step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path

import numpy as np
import torch

from paragan import build
from paragan.config import RunConfig
from paragan.core.capabilities import CHOOSER, Capability, Need, check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.extensions.planning.cluster import Cluster, Interconnect, Link, find_interconnect
from paragan.extensions.planning.forecast_plot import check_plot_file, write_forecast_plot
from paragan.extensions.planning.plan import Forecast, ForecastPlan, Goal, Scaling
from paragan.extensions.planning.profile import RunProfile, read_profile
from paragan.extensions.planning.profile_run import measure_profile, updates_fingerprint
from paragan.extensions.planning.simulation import GameCosts, SimulatedTime
from paragan.runs.run_request import Log

_MAX_WORKERS = 1 << 16
_NUM_STEPS = 200
_WARM_UP = 20
_FREE = Link(latency_s=0.0, bytes_per_s=inf)
_COUNTS = ("cores", "workers_per_host")
_ASSUMED_KEYS = (*_COUNTS, "speed", "jitter")


@dataclass(frozen=True, kw_only=True)
class ForecastRequest:
    """What to forecast. workers: numbers of them. network: a preset, or LATENCY_US,GBIT.

    profile: file to read, or to write if there is none; None: measure and keep nothing. assume:
    KEY=VALUE words about the cluster. is_chosen: choose settings for the largest number. plot: SVG
    or PNG file to draw.
    """

    workers: Sequence[int]
    network: str = "ethernet-10g"
    scaling: Scaling = "weak"
    profile: Path | None = None
    assume: Sequence[str] = ()
    is_chosen: bool = False
    plot: Path | None = None


def forecast_run(
    config: RunConfig, recipe: str, request: ForecastRequest, data: build.Data, memory: Callable[[int], int], log: Log
) -> ForecastPlan:
    """Return the forecasts of a request that `check_forecast` has passed.

    memory: bytes at the peak of a step of a batch size. Raises `ConfigError` for the profile of another model.
    """
    cluster = cluster_of(request.network, request.assume)
    if request.profile is not None and request.profile.exists():
        profile = read_profile(request.profile)
        if profile.fingerprint != updates_fingerprint(config):
            raise ConfigError(
                f"{request.profile} is the profile of recipe {profile.recipe} with other networks, losses or updates; "
                "measure this one: name another file"
            )
    else:
        profile = measure_profile(config, recipe, data, memory, log=log)
        if request.profile is not None:
            profile.write(request.profile)
    goal = Goal(config.train.kimg, request.scaling)
    game = simulated_game_of(config, profile)
    log(f"simulating {', '.join(f'{count:,}' for count in request.workers)} workers")
    plan = ForecastPlan(profile, cluster, goal, forecasts(game, cluster, goal, request.workers))
    if request.plot is not None:
        write_forecast_plot(plan, request.plot)
    return plan


def check_forecast(config: RunConfig, request: ForecastRequest) -> None:
    """Raise `ConfigError` for a scheme, strategies, workers, a network, … that no forecast can have."""
    check_simulation(config)
    if request.is_chosen:
        check_capabilities(CHOOSER, config.needs)
    for count in request.workers:
        if not 1 <= count <= _MAX_WORKERS:
            raise ConfigError(f"--workers must be numbers from 1 to {_MAX_WORKERS:,}, not {count}")
    if request.plot is not None:
        check_plot_file(request.plot)
    cluster_of(request.network, request.assume)


def check_simulation(config: RunConfig) -> None:
    """Raise `ConfigError` for a scheme or strategies whose steps are not simulated."""
    workers = [Need("--workers (of plan) or --plan (of train)", Capability.FORECAST)]
    scheme = build.scheme(config)
    check_capabilities(scheme.holder, workers)
    if config.players and scheme.is_concurrent:
        raise ConfigError(
            f"--workers simulates players other than G and D on the same ranks; scheme {config.scheme.name} may have "
            "them on separate ones: plan them with another scheme"
        )
    for options in config.player_options.values():
        check_capabilities(build.strategy_on_ranks(options, torch.device("cpu")).holder, workers)


def simulated_game_of(config: RunConfig, profile: RunProfile) -> GameCosts:
    """Return the game of a config for simulation: its scheme, and what its strategies exchange."""
    cpu = torch.device("cpu")
    strategies = {Side(name): build.strategy_on_ranks(options, cpu) for name, options in config.player_options.items()}
    return GameCosts(
        profile=profile,
        scheme=build.scheme(config),
        exchanges={side: strategy.exchanges for side, strategy in strategies.items()},
        batch=config.train.batch,
        g_batch=getattr(config.scheme.options, "g_batch", None),
        spans_norms={side: strategy.spans_norms for side, strategy in strategies.items()},
    )


def cluster_of(network: str, assume: Sequence[str] = ()) -> Cluster:
    """Return a cluster of one worker. assume: `cores=2`, `speed=3`, `jitter=0.05`, …

    Raises `ConfigError` for an unknown network or key.
    """
    values = dict(map(_parse_assumption, assume))
    links = _parse_network(network)
    return Cluster(
        workers=1,
        network=replace(links, workers_per_host=int(values.get("workers_per_host", links.workers_per_host))),
        cores=int(values["cores"]) if "cores" in values else None,
        speed=values.get("speed", 1.0),
        jitter=values.get("jitter", 0.0),
    )


def _parse_assumption(word: str) -> tuple[str, float]:
    """Return key and value of a word of `--assume`."""
    key, _, text = word.partition("=")
    if key not in _ASSUMED_KEYS:
        raise ConfigError(f"--assume: unknown key {key!r}; choose one of {', '.join(_ASSUMED_KEYS)}")
    value = _parse_float(text)
    kind = "integer" if key in _COUNTS else "number"
    is_of_kind = value.is_integer() or kind == "number"
    if not 0 <= value < inf or (value == 0 and key != "jitter") or not is_of_kind:
        raise ConfigError(f"--assume {key}={text}: {key} must be a positive {kind}")
    return key, value


def _parse_network(text: str) -> Interconnect:
    """Return a preset, or a network of `LATENCY_US,GBIT` between workers of separate hosts."""
    latency, comma, speed = text.partition(",")
    if not comma:
        return find_interconnect(text)
    link = Link(_parse_float(latency) * 1e-6, _parse_float(speed) * 1e9 / 8)
    if not 0 <= link.latency_s < inf or not 0 < link.bytes_per_s < inf:
        raise ConfigError(f"--network {text}: pass LATENCY_US,GBIT, such as 50,10, or a preset")
    return Interconnect(inside=link, between=link, workers_per_host=1, source="as given")


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


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
    losses = {"compute": 100 * compute_s / step_s}
    before_s = compute_s
    for cause, after_s in steps_s.items():
        losses[cause] = 100 * (after_s - before_s) / step_s
        before_s = after_s
    images = game.profile.batches_per_step * batch
    simulated = SimulatedTime(game=scaled, cluster=cluster)
    simulated.run(num_steps)
    return Forecast(
        workers=cluster.workers,
        hosts=cluster.hosts,
        batch=batch,
        step_s=step_s,
        images_per_s=images / step_s,
        efficiency=compute_s / step_s,
        link_bytes={kind: number / num_steps for kind, number in simulated.bytes.items()},
        hours=goal.kimg * 1000 / images * step_s / 3600,
        losses=losses,
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
