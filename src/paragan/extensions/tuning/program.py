"""Tuning of the run of a program, before its first step (`ScalingManager(tune=…)`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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


def tuned_config(
    config: RunConfig,
    networks: Model,
    dimensions: Sequence[Dimension],
    trials: int,
    *,
    world: World,
    place: RankEnv | None,
    folder: Path,
    fresh: bool,
    say: Callable[[str], None],
) -> RunConfig:
    """Return the config of a program's run with the values of the best trial. Collective, on the ranks of `world`.

    networks: from memory. folder: of the run, which keeps its values if it exists, unless `fresh`. Raises
    `ConfigError` as `tune`, and if no trial has a score.
    """

    def configure(words: Sequence[str]) -> RunConfig:
        return parse_recipe(dump(config), "tune", ANY, words)

    if (folder / "config.yaml").is_file() and not fresh:
        former = compare(config, read_recipe(str(folder / "config.yaml"), outside=ANY))
        keys = tuple(one.key for one in dimensions)
        return configure([f"{key}={json.dumps(now)}" for key, (_, now) in former.items() if key.startswith(keys)])
    check_trials(configure, dimensions)
    plan = StudyPlan(
        recipe=folder.name,
        settings=(),
        dimensions=tuple(dimensions),
        goal=_GOAL,
        direction=goal_direction(config, _GOAL, networks),
        trials=trials,
        kimg=max(1, len(config.max_steps) // _LENGTH) * config.train.batch * config.batches_per_step / 1000,
        seed=config.seed,
    )
    studies = folder.with_name(f"{folder.name}-tune")
    tuning = Tuning(plan=plan, configure=configure, folder=studies, world=world, place=place, model=networks)
    best = best_trial(plan, tune(tuning, Interrupt(), say))
    values = world.gather(None if best is None else best.values)[0]
    if values is None:
        raise ConfigError(f"tune: no trial has a score; {studies / 'logs'} has what each printed")
    say(f"tune      {' '.join(trial_words(values))}")
    return configure(trial_words(values))
