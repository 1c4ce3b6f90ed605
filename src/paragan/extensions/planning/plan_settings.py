"""The scaling manager: candidates for a run on many workers, and a config with the chosen one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from paragan import build
from paragan.config import RunConfig, choose, dump, parse_recipe
from paragan.config.sections import ANY
from paragan.core import registry
from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.network_factory import Model
from paragan.core.process_environment import num_cores
from paragan.core.types import Side
from paragan.extensions.planning.choose import Candidate, PlanGoal, choose_plan
from paragan.extensions.planning.cluster import Cluster
from paragan.extensions.planning.forecast_run import ForecastRequest, cluster_of, simulated_game_of
from paragan.extensions.planning.plan import VERSION, ParallelPlan
from paragan.extensions.planning.profile import RunProfile
from paragan.extensions.planning.profile_run import updates_fingerprint
from paragan.game.gan import GAN
from paragan.hardware import device as devices

_LOCAL_SGD = {f"{side.value}.strategy": {"name": "local_sgd", "every": 2} for side in Side}
_BF16 = {f"{side.value}.reduce": "bf16" for side in Side}
_THIS_HOST = "loopback"
_USABLE = 0.85  # of a process's memory: the rest is for libraries, other programs and errors of the forecast


@dataclass(frozen=True)
class PlanSource:
    """A config with what its plan is made from. model: networks from memory."""

    config: RunConfig
    data: build.Data
    profile: RunProfile
    model: Model | None = None


def plan_settings(
    source: PlanSource, cluster: Cluster, batch: int, memory_bytes: int | None = None, rule: str | None = None
) -> ParallelPlan:
    """Choose the settings of a run on a cluster. batch: over all workers.

    memory_bytes: of a worker. rule: of the learning rates.
    """
    config = source.config
    goal = PlanGoal(
        batch=batch,
        base_batch=config.train.batch,
        kimg=config.train.kimg,
        rule=rule,
        memory_bytes=memory_bytes,
        is_decoded=source.data.train.is_decoded and not config.loading.prefetch,
    )
    planned = replace(config, train=replace(config.train, batch=batch))
    game = build.gan(config, source.data, torch.device("cpu"), model=source.model)

    def candidates(strategy: str) -> list[Candidate]:
        return _candidates(replace(source, config=planned), game, cluster.workers, strategy)

    players = {Side.G: config.g, Side.D: config.d}
    return choose_plan(source.profile, cluster, goal, candidates, players)


def with_settings(config: RunConfig, settings: Mapping[str, Any], source: str = "plan") -> RunConfig:
    """Return the config with settings written over it, by dotted key."""
    return parse_recipe(dump(config), source, ANY, to_words(settings))


def to_words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as `key=value` words."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]


def apply_plan(config: RunConfig, plan: ParallelPlan, num_workers: int, source: str = "plan") -> RunConfig:
    """Return the config with the settings of a plan.

    Raises `ConfigError` for a plan of other networks, of another kind of machine, or for another
    number of workers.
    """
    if plan.fingerprint != updates_fingerprint(config):
        raise ConfigError(f"{source} is for other networks, losses or updates than this recipe; plan it anew")
    machine = devices.machine(devices.select_device())
    if plan.machine != machine:
        raise ConfigError(f"{source} is from a profile of {plan.machine}; this machine is {machine}; plan it here")
    if plan.workers != num_workers:
        raise ConfigError(
            f"{source} is for {plan.workers} workers, not {num_workers}; pass devices={plan.workers}, or plan anew"
        )
    return with_settings(config, plan.settings, source)


def read_parallel_plan(path: Path) -> ParallelPlan:
    """Return the plan in a document of `plan --choose --json`; `ConfigError` for another file."""
    hint = f"write one with: plan RECIPE --workers N --choose --json > {path}"
    try:
        tree = json.loads(path.read_text())
        if tree["version"] != VERSION:
            raise ConfigError(f"{path} is a plan of version {tree['version']}, not {VERSION}; plan it anew")
        return ParallelPlan.of(tree["parallel"])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); {hint}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a plan with settings; {hint}") from error


def _candidates(source: PlanSource, game: GAN, workers: int, strategy: str) -> list[Candidate]:
    """Return the config, and what may be faster and is allowed."""
    sharded = {} if strategy == "ddp" else {f"{side.value}.strategy.name": strategy for side in Side}
    candidates = [_candidate(source, "as configured", sharded, 0.0)]
    config = source.config
    scheme = build.scheme(config)
    for name, options in scheme.plan_settings(workers).items():
        settings = {**sharded, **{f"scheme.{key}": value for key, value in options.items()}}
        candidates.append(_candidate(source, name, settings, 0.05))
    has_strategies = config.g.strategy is not None or config.d.strategy is not None
    is_open = strategy == "ddp" and not has_strategies and workers > 1
    if not is_open or scheme.is_concurrent:
        return candidates
    candidates.append(_candidate(source, "bf16 reductions", _BF16, 0.05))
    terms = (*game.g_penalties, *game.d_penalties)
    if not game.loss.compares and not any(Capability.COUPLED in term.needs for term in terms):
        candidates.append(_candidate(source, "local SGD, H = 2", _LOCAL_SGD, 0.1))
    for name, settings in _other_schemes(config, workers):
        if _allows(source, game, settings):
            candidates.append(_candidate(source, name, settings, 0.15))
            candidates.append(_candidate(source, f"{name}, H = 2", {**settings, **_LOCAL_SGD}, 0.2))
    return candidates


def _other_schemes(config: RunConfig, workers: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and settings of other schemes that may be faster."""
    for name in sorted({*registry.names("schemes")} - {config.scheme.name}):
        scheme = build.scheme(replace(config, scheme=choose("schemes", name)))
        for about, options in scheme.plan_settings(workers).items():
            yield f"{name}, {about}", {"scheme": {"name": name, **options}}


def _candidate(source: PlanSource, name: str, settings: Mapping[str, Any], margin: float) -> Candidate:
    config = with_settings(source.config, settings)
    return Candidate(name, simulated_game_of(config, source.profile), settings, margin)


def _allows(source: PlanSource, game: GAN, settings: Mapping[str, Any]) -> bool:
    """Return whether a scheme can train this game."""
    try:
        build.scheme(with_settings(source.config, settings)).refuse(game, source.data.train.tensors)
    except ConfigError:
        return False
    return True


def choose_settings(
    source: PlanSource, cluster: Cluster, request: ForecastRequest, memory_gb: float | None
) -> ParallelPlan:
    """Choose the settings for the largest number of workers of a request."""
    workers = max(request.workers)
    batch = source.config.train.batch * (workers if request.scaling == "weak" else 1)
    limit = None if memory_gb is None else round(memory_gb * 1e9)
    return plan_settings(source, replace(cluster, workers=workers), batch, limit)


def plan_here(source: PlanSource, workers: int, batch: int, rule: str | None = None) -> ParallelPlan:
    """Choose the settings of so many workers of this host, within its memory.

    The memory of networks from memory is not planned.
    """
    device = torch.device(source.profile.device)
    cores = num_cores() if device.type == "cpu" else None
    cluster = replace(cluster_of(_THIS_HOST), workers=workers, cores=cores)
    memory = devices.memory_per_process(device, workers) if source.model is None else None
    limit = None if memory is None else int(_USABLE * memory)
    return plan_settings(source, cluster, batch, limit, rule=rule)
