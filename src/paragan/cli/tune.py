"""`paragan tune`: the values of settings at which short runs of a recipe score best."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paragan.cli.arguments import Trust, Words
from paragan.cli.run_arguments import load_config, parse_words
from paragan.cli.table import format_table, terminal_width
from paragan.config import RunConfig, read_recipe
from paragan.config.sections import ANY
from paragan.core.addresses import is_url
from paragan.core.errors import PREEMPTED, ConfigError, ParaganError
from paragan.core.printable import print_line

if TYPE_CHECKING:
    from paragan.core.interrupt import Interrupt
    from paragan.extensions.tuning.tune import Tuning

_OUT = "Folder of the study, on this machine (default: runs/RECIPE-tune)."
Out = Annotated[str | None, typer.Option(metavar="DIR", help=_OUT)]
Trials = Annotated[int, typer.Option(min=1, help="Number of trials (--sampler grid: at most all combinations).")]
_GOAL = "Metric to compare trials by: fd, coverage, … (`list metrics`)."
Goal = Annotated[str, typer.Option(metavar="METRIC", help=_GOAL)]
_KIMG = "Length of a trial in thousands of images (default: train.kimg)."
Kimg = Annotated[float | None, typer.Option(metavar="KIMG", help=_KIMG)]
_SAMPLER = "Choice of values: tpe learns from the scores so far; grid tries all combinations of single values."
SamplerName = Annotated[Literal["tpe", "grid"], typer.Option("--sampler", help=_SAMPLER)]


def tune_command(
    context: typer.Context,
    words: Words = None,
    *,
    trials: Trials = 20,
    goal: Goal = "fd",
    kimg: Kimg = None,
    sampler: SamplerName = "tpe",
    out: Out = None,
    trust: Trust = False,
) -> None:
    """Search for the best settings by short runs of a recipe.

    A setting to vary is KEY=log:1e-5..1e-3, KEY=0..1, KEY=int:16..64 or KEY=a,b,c. The same command
    resumes, and may run in several processes at once. Needs Optuna (extra `tune`).
    """
    recipe, overrides, folder = parse_words(words, context)
    if folder is not None:
        raise ConfigError(f"{folder} is a run folder; pass a recipe, and the folder of the study with --out")
    if out is not None and is_url(out):
        raise ConfigError(f"--out {out}: a study needs a local folder; pass --out DIR")
    options = {"goal": goal, "trials": trials, "kimg": kimg, "sampler": sampler}
    tuning = _tuning(recipe, overrides, out, options, ANY if trust else None)
    from paragan.core.interrupt import install

    with install() as interrupt:
        raise typer.Exit(_run(tuning, interrupt))


def _tuning(
    recipe: str, overrides: Sequence[str], out: str | None, options: Mapping[str, Any], outside: Container[str] | None
) -> Tuning:
    """Return the study of the command's words. Raises `ConfigError` for what cannot be tuned."""
    from paragan.extensions.tuning.space import check_optuna, parse_space, trial_words
    from paragan.extensions.tuning.study import StudyPlan
    from paragan.extensions.tuning.tune import Tuning, check_trials, goal_direction
    from paragan.runs.run_request import run_name
    from paragan.runs.session import join_world

    check_optuna()
    fixed, dimensions = parse_space(overrides)
    kimg = [] if options["kimg"] is None else [f"train.kimg={options['kimg']}"]
    example = trial_words({dimension.key: dimension.extremes[0] for dimension in dimensions})  # any values
    config = load_config(recipe, [*fixed, *kimg, *example], outside)
    _check_one_process(config)

    def configure(settings: Sequence[str]) -> RunConfig:
        return read_recipe(recipe, [*fixed, *settings], outside)

    check_trials(configure, dimensions)  # now, not hours later in the trial that first draws a wrong value
    plan = StudyPlan(
        recipe=recipe,
        settings=fixed,
        dimensions=dimensions,
        goal=options["goal"],
        direction=goal_direction(config, options["goal"]),
        trials=options["trials"],
        kimg=config.train.kimg,
        seed=config.seed,
        sampler=options["sampler"],
    )
    if not 0 < config.every.score_kimg < plan.kimg:
        print(f"tune: no trial stops early, as every.score_kimg={config.every.score_kimg:g} scores only their ends")
    folder = Path(out or f"runs/{run_name(recipe)}-tune")
    return Tuning(plan=plan, configure=configure, folder=folder, world=join_world(config, place=None))


def _check_one_process(config: RunConfig) -> None:
    from paragan.distributed.launch.rank_env import from_environment

    if (config.devices or 1) > 1 or from_environment() is not None:
        raise ConfigError(
            "a trial of tune trains in one process; leave devices and torchrun out, and start tune once for each device"
        )


def _run(tuning: Tuning, interrupt: Interrupt) -> int:
    """Run the study and print its results; return the exit code. `ParaganError`: no trial has a score."""
    from paragan.extensions.tuning.results import best_trial, trial_rows, winner_command, write_results
    from paragan.extensions.tuning.tune import tune

    trials = tune(tuning, interrupt, print_line)
    if interrupt.requested:
        return PREEMPTED
    print(format_table(trial_rows(tuning.plan, trials), terminal_width()))
    print(write_results(tuning.plan, trials, tuning.folder))
    best = best_trial(tuning.plan, trials)
    if best is None:
        reason = next((trial.reason for trial in reversed(trials) if trial.reason), "see its folder logs/")
        raise ParaganError(f"no trial of {tuning.folder} has a score; reason of the last trial: {reason}")
    print(f"train with the best values of trial {best.number}:\n{winner_command(tuning.plan, best)}")
    return 0
