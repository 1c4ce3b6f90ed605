"""Tuning of the run of a program, before its first step (`ScalingManager(tune=…)`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paragan.config import RunConfig, compare, dump, parse_recipe, read_recipe
from paragan.config.sections import ANY
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.interrupt import Interrupt
from paragan.core.network_factory import Model
from paragan.distributed.launch.rank_env import RankEnv
from paragan.extensions.tuning.results import best_trial
from paragan.extensions.tuning.space import Dimension, trial_words
from paragan.extensions.tuning.study import StudyPlan
from paragan.extensions.tuning.tune import Tuning, check_trials, goal_direction, tune

_GOAL = "fd"
_LENGTH = 10  # of the run, in trials


@dataclass(frozen=True, kw_only=True)
class ProgramTuning:
    """A run of a program to tune, on the ranks of `world`. networks: from memory. folder: of the run."""

    config: RunConfig
    networks: Model
    world: World
    place: RankEnv | None
    folder: Path

    def apply(self, dimensions: Sequence[Dimension], trials: int, fresh: bool, say: Callable[[str], None]) -> RunConfig:
        """Return the config with the values of the best trial. Collective.

        A run that exists keeps its values, unless `fresh`. Raises `ConfigError` as `tune`, and if no
        trial has a score.
        """
        if (self.folder / "config.yaml").is_file() and not fresh:
            former = compare(self.config, read_recipe(str(self.folder / "config.yaml"), outside=ANY))
            keys = tuple(one.key for one in dimensions)
            return self._with([f"{key}={json.dumps(now)}" for key, (_, now) in former.items() if key.startswith(keys)])
        config = self.config
        check_trials(self._with, dimensions)
        plan = StudyPlan(
            recipe=self.folder.name,
            settings=(),
            dimensions=tuple(dimensions),
            goal=_GOAL,
            direction=goal_direction(config, _GOAL, self.networks),
            trials=trials,
            kimg=max(1, len(config.max_steps) // _LENGTH) * config.train.batch * config.batches_per_step / 1000,
            seed=config.seed,
        )
        folder = self.folder.with_name(f"{self.folder.name}-tune")
        tuning = Tuning(
            plan=plan, configure=self._with, folder=folder, world=self.world, place=self.place, model=self.networks
        )
        best = best_trial(plan, tune(tuning, Interrupt(), say))
        values = self.world.gather(None if best is None else best.values)[0]
        if values is None:
            raise ConfigError(f"tune: no trial has a score; {folder / 'logs'} has what each printed")
        say(f"tune      {' '.join(trial_words(values))}")
        return self._with(trial_words(values))

    def _with(self, words: Sequence[str]) -> RunConfig:
        return parse_recipe(dump(self.config), "tune", ANY, words)
