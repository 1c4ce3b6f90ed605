"""Settings of a plan for a run that is about to start (`train --plan`)."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from paragan import build
from paragan.config import RunConfig, compare, read_recipe, to_tree
from paragan.core.capabilities import CHOOSER, check_capabilities
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.files import read_json_file
from paragan.core.network_factory import Model
from paragan.core.printable import counted
from paragan.core.process_environment import num_cores
from paragan.distributed.launch.rank_env import from_environment
from paragan.extensions.planning.candidates import PlanSource, to_words, with_settings
from paragan.extensions.planning.choose import choose_plan
from paragan.extensions.planning.forecast import check_simulation, cluster_of
from paragan.extensions.planning.plan import VERSION, ParallelPlan
from paragan.extensions.planning.plan_run import simulated_game
from paragan.extensions.planning.profile_run import measure_profile, updates_fingerprint
from paragan.hardware import device as devices
from paragan.runs.run_request import Log
from paragan.runs.start import count_devices

AUTO = "auto"
_THIS_HOST = "loopback"
_USABLE = 0.85  # of a process's memory: the rest is for libraries, other programs and errors of the forecast
# Settings that a plan may change, never of extra players. Whether a plan or the user chose a rate is not recorded, so
# that an existing run keeps its own.
_PLANNED = ("train.batch", "scheme", "g.", "d.", "loading.prefetch")


def planned_words(
    plan: str, config: RunConfig, recipe: str, *, folder: Path | None, describe: Callable[[ParallelPlan], str], log: Log
) -> list[str]:
    """Return the settings of a plan as `key=value` words.

    plan: `auto`, or a document. folder: of a run that keeps its settings if it exists. describe: a
    plan as text. Raises `ConfigError` for a plan that does not fit.
    """
    if folder is not None and (folder / "config.yaml").is_file():
        log(f"plan      {folder} has its settings; --fresh plans a new run")
        return to_words(settings_of_run(config, folder))
    place = from_environment()
    workers = count_devices(config) if place is None else place.size
    if plan != AUTO:
        return to_words(apply_plan(config, Path(plan), workers)[1].settings)
    if place is not None:
        raise ConfigError(
            f"--plan auto measures one process, and this is {place}; write the plan first: "
            "plan RECIPE --workers N --choose --json > FILE, then --plan FILE"
        )
    chosen = plan_here(_profiled(config, recipe, log), workers, config.train.batch)
    log(describe(chosen))
    return to_words(chosen.settings)


def plan_program(
    plan: str | Path,
    config: RunConfig,
    networks: Model,
    *,
    world: World,
    folder: Path | None,
    batch: int,
    rule: str,
    log: Log,
) -> tuple[RunConfig, ParallelPlan | None]:
    """Return the config of a program with the settings of a plan, and a new plan if there is one.

    Collective, on the ranks of `world`. plan: `auto`, or a document. networks: from memory. folder:
    of a run that keeps its settings if it exists. batch: over all ranks. rule: of the learning rates.
    """
    if folder is not None and (folder / "config.yaml").is_file():
        return with_settings(config, settings_of_run(config, folder)), None
    if str(plan) != AUTO:
        return apply_plan(config, Path(plan), world.size)
    document = None
    # the others wait for rank 0 in `gather`: up to the time-out of the group, or, if it fails, until the caller's
    # `share_failures` gives them its error
    if world.is_main:
        source = _profiled(config, config.model.name, log, networks)
        document = asdict(plan_here(source, world.size, batch, rule))
    chosen = ParallelPlan.of(world.gather(document)[0])
    for decision in chosen.decisions:
        log(f"plan      {decision.key or 'unchanged'}: {decision.value} ({decision.reason})")
    return with_settings(config, chosen.settings), chosen


def _profiled(config: RunConfig, recipe: str, log: Log, model: Model | None = None) -> PlanSource:
    """Return the config with its data, and the profile of one worker, measured here.

    model: networks from memory, instead of the config's. Their memory is not planned: the simulation that measures it
    constructs networks without values, and these exist.
    """
    check_capabilities(CHOOSER, config.needs)
    check_simulation(config)
    data = build.open_data(config, model)
    memory = None
    if model is None:
        memory = simulated_game(config, data, devices.select_device(config.train.threads)).peak_bytes
    return PlanSource(config, data, measure_profile(config, recipe, data, memory, log=log, model=model), model)


def settings_of_run(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Return the settings of an existing run that a plan may have changed, where they differ."""
    former = read_recipe(str(folder / "config.yaml"))
    tree = to_tree(former)
    # whole maps, because a scheme or strategy has options that another one does not
    maps = {f"{side}.strategy": tree[side]["strategy"] for side in ("g", "d")} | {"scheme": tree["scheme"]}
    settings = {}
    for key, (_, value_of_run) in compare(config, former).items():
        map_key = next((name for name in maps if key == name or key.startswith(f"{name}.")), None)
        if map_key is not None:
            settings[map_key] = maps[map_key]
        elif key.startswith(_PLANNED):
            settings[key] = value_of_run
    return settings


def apply_plan(config: RunConfig, path: Path, num_workers: int) -> tuple[RunConfig, ParallelPlan]:
    """Return the config with the settings of a plan in a file, and the plan.

    Raises `ConfigError` for another file, and for a plan of other networks, workers, or another kind of machine.
    """
    plan = read_parallel_plan(path)
    if plan.fingerprint != updates_fingerprint(config):
        raise ConfigError(f"{path} is for other networks, losses or updates than this recipe; plan it anew")
    machine = devices.machine(devices.select_device())
    if plan.machine != machine:
        raise ConfigError(f"{path} is from a profile of {plan.machine}; this machine is {machine}; plan it here")
    if plan.workers != num_workers:
        raise ConfigError(
            f"{path} is for {counted(plan.workers, 'worker')}, not {num_workers}; pass devices={plan.workers}, "
            "or plan anew"
        )
    return with_settings(config, plan.settings, str(path)), plan


def read_parallel_plan(path: Path) -> ParallelPlan:
    """Return the plan in a document of `plan --choose --json`; `ConfigError` for another file."""
    hint = f"write one with: plan RECIPE --workers N --choose --json > {path}"
    try:
        tree = read_json_file(path, dict)
        if tree["version"] != VERSION:
            raise ConfigError(f"{path} is a plan of version {tree['version']}, not {VERSION}; plan it anew")
        return ParallelPlan.of(tree["parallel"])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); {hint}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a plan with settings; {hint}") from error


def plan_here(source: PlanSource, workers: int, batch: int, rule: str | None = None) -> ParallelPlan:
    """Choose the settings of so many workers of this host, within its memory (but see `_profiled`)."""
    device = torch.device(source.profile.device)
    cores = num_cores() if device.type == "cpu" else None
    cluster = replace(cluster_of(_THIS_HOST), workers=workers, cores=cores)
    memory = devices.memory_per_process(device, workers) if source.model is None else None
    limit = None if memory is None else int(_USABLE * memory)
    return choose_plan(source, cluster, batch, limit, rule)
