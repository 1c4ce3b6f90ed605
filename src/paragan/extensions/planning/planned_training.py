"""Settings of a plan for a run that is about to start (`train --plan`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragan.config import RunConfig, compare, read_recipe, to_tree
from paragan.core.capabilities import CHOOSER, check_capabilities
from paragan.core.errors import ConfigError
from paragan.distributed.launch.rank_env import from_environment

if TYPE_CHECKING:
    from paragan.core.dist import World
    from paragan.core.network_factory import Model
    from paragan.extensions.planning.parallel_plan import ParallelPlan
    from paragan.extensions.planning.plan_settings import PlanSource

AUTO = "auto"
_PLANNED = ("train.batch", "scheme", "g.", "d.", "loading.prefetch")  # settings that a plan may change
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run to plan. folder: of the run. fresh: it starts anew. describe: a plan as text."""

    config: RunConfig
    recipe: str
    folder: Path
    fresh: bool
    describe: Callable[[ParallelPlan], str]

    def words(self, plan: str, say: Say) -> list[str]:
        """Return the settings of a plan as `key=value` words.

        plan: `auto`, or a document. A run that exists keeps its settings. Raises `ConfigError` for
        a plan that does not fit.
        """
        if (self.folder / "config.yaml").is_file() and not self.fresh:
            say(f"plan      {self.folder} has its settings; --fresh plans a new run")
            return to_words(settings_of_run(self.config, self.folder))
        from paragan.extensions.planning import plan_settings
        from paragan.runs.start import count_devices

        place = from_environment()
        workers = count_devices(self.config) if place is None else place.size
        if plan != AUTO:
            chosen = plan_settings.read_parallel_plan(Path(plan))
            plan_settings.apply_plan(self.config, chosen, workers, plan)
            return to_words(chosen.settings)
        if place is not None:
            hint = "write the plan first: plan RECIPE --workers N --choose --json > FILE, then --plan FILE"
            raise ConfigError(f"--plan auto measures one process, and this is {place}; {hint}")
        source = profiled(self.config, self.recipe, say)
        chosen = plan_settings.plan_here(source, workers, self.config.train.batch)
        say(self.describe(chosen))
        return to_words(chosen.settings)


@dataclass(frozen=True, kw_only=True)
class ProgramPlan:
    """A run of a program to plan, on the ranks of `world`.

    networks: from memory. folder: of a run that may exist. batch: over all ranks. rule: of the
    learning rates.
    """

    config: RunConfig
    networks: Model
    world: World
    folder: Path | None
    batch: int
    rule: str

    def apply(self, plan: str | Path, say: Say) -> tuple[RunConfig, ParallelPlan | None]:
        """Return the config with the settings of a plan, and a new plan if there is one.

        Collective. plan: `auto`, or a document. A run that exists keeps its settings.
        """
        from paragan.extensions.planning import plan_settings
        from paragan.extensions.planning.parallel_plan import ParallelPlan

        if self.folder is not None and (self.folder / "config.yaml").is_file():
            settings = settings_of_run(self.config, self.folder)
            return plan_settings.with_settings(self.config, settings), None
        if str(plan) != AUTO:
            chosen = plan_settings.read_parallel_plan(Path(plan))
            return plan_settings.apply_plan(self.config, chosen, self.world.size, str(plan)), chosen
        document = None
        if self.world.is_main:
            source = profiled(self.config, self.config.model.name, say, self.networks)
            document = plan_settings.plan_here(source, self.world.size, self.batch, self.rule).to_dict()
        chosen = ParallelPlan.of(self.world.gather(document)[0])
        for one in chosen.decisions:
            say(f"plan      {one.key or 'unchanged'}: {one.value} ({one.reason})")
        return plan_settings.with_settings(self.config, chosen.settings), chosen


def profiled(config: RunConfig, recipe: str, say: Say, model: Model | None = None) -> PlanSource:
    """Return the config with its data, and the profile of one worker, measured here.

    model: networks from memory, instead of the config's; their memory is not planned.
    """
    from paragan import build
    from paragan.extensions.planning.forecast_run import refuse_simulation
    from paragan.extensions.planning.plan_run import simulated_game
    from paragan.extensions.planning.plan_settings import PlanSource
    from paragan.extensions.planning.profile_run import measure_profile
    from paragan.hardware.device import select_device

    check_capabilities(CHOOSER, config.needs)
    refuse_simulation(config)
    data = build.open_data(config, model)
    simulated = None if model is not None else simulated_game(config, data, select_device(config.train.threads))

    def peak_bytes(batch: int) -> int:
        return 0 if simulated is None else simulated.memory(batch).peak_bytes

    return PlanSource(config, data, measure_profile(config, recipe, data, peak_bytes, say=say, model=model), model)


def settings_of_run(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Return the settings of an existing run that a plan may have changed, where they differ."""
    former = read_recipe(str(folder / "config.yaml"))
    tree = to_tree(former)
    # whole maps, because a scheme or strategy has options that another one does not
    whole = {f"{side}.strategy": tree[side]["strategy"] for side in ("g", "d")}
    whole["scheme"] = tree["scheme"]
    settings = {}
    for key, (_, after) in compare(config, former).items():
        owner = next((name for name in whole if key == name or key.startswith(f"{name}.")), None)
        if owner is not None:
            settings[owner] = whole[owner]
        elif key.startswith(_PLANNED):
            settings[key] = after
    return settings


def to_words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as `key=value` words."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
