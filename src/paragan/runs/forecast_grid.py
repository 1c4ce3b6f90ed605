"""The forecast of a grid: what one process was measured to do, and many workers would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paragan.config import RunConfig
from paragan.core.errors import ConfigError
from paragan.runs.forecast_run import ForecastRequest, Say, cluster_of, refuse_counts
from paragan.runs.plan_run import PlanRequest, open_planned_data
from paragan.runs.profile_grid import grid_fingerprint, measure_grid_profile
from paragan.scaling.forecast import Goal
from paragan.scaling.grid_forecast import GridPlan, forecast_grid, scaled_grid
from paragan.scaling.grid_profile import GridProfile, read_grid_profile
from paragan.scaling.simulated_grid import GridCosts


def plan_grid(request: PlanRequest, say: Say = lambda line: None) -> GridPlan:
    """Return the forecasts of a grid. say: called with a line before each long part.

    Raises `ConfigError` for options that are those of one pair, and for what cannot be simulated.
    """
    ahead = request.forecast
    assert ahead is not None and request.config.grid is not None
    _refuse_options_of_a_pair(request, ahead)
    refuse_counts(ahead.workers)
    for count in ahead.workers:
        scaled_grid(request.config.grid, count, ahead.scaling == "weak")
    cluster = cluster_of(ahead.network, ahead.assume)
    config = _without_scores(request.config) if request.shape is not None else request.config
    profile = _obtain_profile(config, request, ahead.profile, say)
    goal = Goal(config.train.kimg, ahead.scaling, ahead.cost_per_hour, config.every.save_kimg)
    costs = grid_costs(config, profile)
    say(f"simulating {', '.join(f'{count:,}' for count in ahead.workers)} workers")
    rows = tuple(forecast_grid(costs, cluster.with_workers(count), goal) for count in ahead.workers)
    about = (request.recipe, profile, cluster, goal, costs.generations)
    return GridPlan(*about, rows, _notes(request))


def grid_costs(config: RunConfig, profile: GridProfile) -> GridCosts:
    """Return what is simulated of a config with a grid."""
    assert config.grid is not None
    images = config.grid.batches * config.train.batch * config.d.updates_per_step
    generations = -(-len(config.max_steps) // config.grid.batches)
    every = config.every
    score_kimg = 0.0 if config.evaluation.features is None else every.score_kimg
    periods = [kimg for kimg in (every.save_kimg, every.sample_kimg, score_kimg) if kimg]
    gather_period = _generations(min(periods), images) if periods else 0
    # over gloo only the generation is repeated, in which a worker fails
    since_save = _generations(every.save_kimg, images) if every.save_kimg else generations
    repeated = (since_save if config.transport == "mpi" else 1) / 2
    return GridCosts(profile, config.grid, images, generations, gather_period, repeated)


def _generations(kimg: float, images: int) -> int:
    return max(1, round(kimg * 1000 / images))


def _refuse_options_of_a_pair(request: PlanRequest, ahead: ForecastRequest) -> None:
    given = {
        "--choose": ahead.is_chosen,
        "--hours": ahead.hours is not None,
        "--plot": ahead.plot is not None,
        "--memory": request.memory_gb is not None,
        "--measure": request.is_measured,
    }
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(f"{name} is for one pair of networks, not for a grid; leave it out")


def _without_scores(config: RunConfig) -> RunConfig:
    return replace(config, evaluation=replace(config.evaluation, features=None))


def _obtain_profile(config: RunConfig, request: PlanRequest, path: Path | None, say: Say) -> GridProfile:
    """Return the profile in a file, or measure it, and write the file if one is named."""
    if path is not None and path.exists():
        profile = read_grid_profile(path)
        if profile.fingerprint != grid_fingerprint(config):
            found = f"recipe {profile.recipe} with another grid, networks or losses"
            raise ConfigError(f"{path} is the profile of {found}; measure this one: name another file")
        return profile
    profile = measure_grid_profile(config, request.recipe, open_planned_data(request), say)
    if path is not None:
        profile.write(path)
    return profile


def _notes(request: PlanRequest) -> tuple[str, ...]:
    config = request.config
    notes = ["samples, scores of the run and the writing of checkpoints are not included"]
    if request.shape is not None:
        notes.append("mixtures are not scored, since there is no data")
    if config.transport != "gloo":
        notes.append(f"transport={config.transport}: simulated as gloo")
    return tuple(notes)
