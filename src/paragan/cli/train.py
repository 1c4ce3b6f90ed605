"""`paragan train`: training of a new run, or a resume."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import Code, Trust, Words, trusted_recipe
from paragan.cli.run_arguments import load_config, parse_words
from paragan.config import RunConfig
from paragan.core.addresses import is_url
from paragan.core.errors import ConfigError
from paragan.core.outside_code import CodeFolder
from paragan.core.registry import check_extension, has_extension
from paragan.runs.run_request import RunRequest, check_data_files

_OUT = "Run folder (default: runs/RECIPE), or an address in an object store (s3://BUCKET/RUN)."
Out = Annotated[str | None, typer.Option(metavar="DIR", help=_OUT)]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start a new run; an existing run folder is renamed.")]
_CHANGE = "Allow a resume to change learning rates, parameter groups and schedules."
Change = Annotated[bool, typer.Option("--change", help=_CHANGE)]
_PLAN = "auto: measure one worker and choose the settings for devices=N. FILE: a plan of `plan --choose --json`."
PlanName = Annotated[str | None, typer.Option("--plan", metavar="auto|FILE", help=_PLAN)]


def train_command(
    context: typer.Context,
    words: Words = None,
    *,
    out: Out = None,
    fresh: Fresh = False,
    change: Change = False,
    plan: PlanName = None,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Train a recipe (default: digits), or resume a run folder.

    Ctrl-C saves a checkpoint; run the same command again to resume.
    """
    recipe, overrides, run = parse_words(words, context)
    if change:
        overrides.append("train.change_rates=true")
    outside = trusted_recipe(trust, code)
    config = load_config(recipe, overrides, outside)
    check_data_files(config.data.options)
    from paragan.runs.start import start_training

    where, folder = _run_place(run if out is None else out, recipe)
    if plan is not None:
        overrides += _planned_words(plan, config, recipe, folder, fresh)
        config = load_config(recipe, overrides, outside)
    request = RunRequest(
        config=config,
        name=recipe,
        out=folder,
        fresh=fresh,
        has_commands=True,
        overrides=tuple(overrides),
        code=outside if isinstance(outside, CodeFolder) else None,
        address=where if is_url(where) else "",
    )
    with _mirroring(request) if request.address else nullcontext():
        exit_code = start_training(request, _advise_on_memory if has_extension("planning") else None)
    raise typer.Exit(exit_code)


def _planned_words(plan: str, config: RunConfig, recipe: str, folder: Path, fresh: bool) -> list[str]:
    check_extension("planning", "--plan")
    from paragan.cli.plan import format_decisions
    from paragan.extensions.planning.planned_training import planned_words

    former = None if fresh else folder
    return planned_words(plan, config, recipe, folder=former, describe=format_decisions, log=print)


def _mirroring(request: RunRequest) -> AbstractContextManager[None]:
    from paragan.extensions.buckets.remote_run import mirroring

    return mirroring(request)


def _advise_on_memory(request: RunRequest) -> str:
    from paragan.extensions.planning.plan_run import advise_on_memory

    return advise_on_memory(request)


def _run_place(where: str | None, recipe: str) -> tuple[str, Path]:
    """Return the folder or address of a run, and its folder on this machine."""
    from paragan.runs.run_request import run_name

    if where == "":
        raise ConfigError("--out is empty; pass a folder, such as runs/mine")
    where = where or f"runs/{run_name(recipe)}"
    if not is_url(where):
        return where, Path(where)
    check_extension("buckets", f"--out {where}")
    from paragan.extensions.buckets.remote_run import working_folder

    return where, working_folder(where)
