"""Tuning of a program that trains networks from memory, by trials on its ranks."""

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

_PROGRAM_GOAL = "fd"  # the first metric where images are scored
_PROGRAM_TRIALS = 10  # trials of a program that are together as long as its run


@dataclass(frozen=True, kw_only=True)
class ProgramTuning:
    """A run of a program to tune, on the ranks of `world`.

    networks: from memory. place: of this rank; None: it is alone. folder: of the run.
    """

    config: RunConfig
    networks: Model
    world: World
    place: RankEnv | None
    folder: Path

    def apply(self, dimensions: Sequence[Dimension], trials: int, fresh: bool, log: Callable[[str], None]) -> RunConfig:
        """Return the config with the values of the best trial. Collective.

        A run that exists keeps its values, unless `fresh`. Raises `ConfigError` as `tune`, and if no
        trial has a score.
        """
        if (self.folder / "config.yaml").is_file() and not fresh:
            former = compare(self.config, read_recipe(str(self.folder / "config.yaml"), outside=ANY))
            words = []
            for key, (_, value_of_run) in former.items():
                # a tuned value, or an option of a tuned choice
                if any(f"{key}.".startswith(f"{dimension.key}.") for dimension in dimensions):
                    words.append(f"{key}={json.dumps(value_of_run)}")
            return self._configure(words)
        config = self.config
        check_trials(self._configure, dimensions)
        num_steps = max(1, len(config.max_steps) // _PROGRAM_TRIALS)
        plan = StudyPlan(
            recipe=self.folder.name,
            settings=(),
            dimensions=tuple(dimensions),
            goal=_PROGRAM_GOAL,
            direction=goal_direction(config, _PROGRAM_GOAL, self.networks),
            trials=trials,
            kimg=num_steps * config.train.batch * config.batches_per_step / 1000,
            seed=config.seed,
        )
        folder = self.folder.with_name(f"{self.folder.name}-tune")
        tuning = Tuning(
            plan=plan, configure=self._configure, folder=folder, world=self.world, place=self.place, model=self.networks
        )
        best = best_trial(plan, tune(tuning, Interrupt(), log))
        best_values, *_ = self.world.gather(None if best is None else best.values)  # known to rank 0 only
        if best_values is None:
            raise ConfigError(f"tune: no trial has a score; {folder / 'logs'} has what each printed")
        words = trial_words(best_values)
        log(f"tune      {' '.join(words)}")
        return self._configure(words)

    def _configure(self, words: Sequence[str]) -> RunConfig:
        return parse_recipe(dump(self.config), "tune", ANY, words)
