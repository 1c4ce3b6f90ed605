"""`paragan sweep`: a run for each combination of settings, on one page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragan.cli.arguments import Words
from paragan.cli.launch import parse_seeds
from paragan.cli.run_arguments import load_config, parse_words
from paragan.core.addresses import is_url
from paragan.core.errors import ConfigError

if TYPE_CHECKING:
    from paragan.runs.sweep_plan import Sweep

_OUT = "Folder of all runs, on this machine (default: runs/RECIPE-sweep)."
Out = Annotated[str | None, typer.Option(metavar="DIR", help=_OUT)]
_SEEDS = "Seeds: 0,1,2 or 0-9. Each combination of settings is trained once with each."
Seeds = Annotated[str | None, typer.Option(metavar="SEEDS", help=_SEEDS)]
_LAUNCH = "Target and options of `launch` for each run, such as 'slurm --gpus 1'."
Launch = Annotated[str, typer.Option(metavar="WORDS", help=_LAUNCH)]
_JOBS = "Runs at a time on this machine."
Jobs = Annotated[int, typer.Option(min=1, help=_JOBS)]
_HALVING = "Successive halving: after KIMG the better half continues, to twice the length, until one is left."
Halving = Annotated[float | None, typer.Option(metavar="KIMG", help=_HALVING)]


def sweep_command(
    context: typer.Context,
    words: Words = None,
    *,
    out: Out = None,
    seeds: Seeds = None,
    launch: Launch = "local",
    jobs: Jobs = 1,
    halving: Halving = None,
) -> None:
    """Train a recipe with all combinations of settings.

    Settings are key=a,b, and --seeds 0-4. Each run has a folder in DIR; DIR/sweep.html shows all.
    The same command resumes.
    """
    recipe, overrides, folder = parse_words(words, context)
    if folder is not None:
        raise ConfigError(f"{folder} is a run; a sweep needs a recipe, and its folder by --out")
    sweep = _sweep(recipe, overrides, parse_seeds(seeds), out, {"jobs": jobs, "halving_kimg": halving})
    sweep = replace(sweep, launch=_split_launch(launch))
    from paragan.core.interrupt import install
    from paragan.runs.sweep import refuse_launch, run_sweep
    from paragan.runs.sweep_page import save_sweep_page

    refuse_launch(sweep)

    def report(line: str) -> None:
        save_sweep_page(sweep)
        print(line, flush=True)

    with install(patient=True, message="stopping all runs") as interrupt:
        code = run_sweep(sweep, interrupt, report)
    for row in save_sweep_page(sweep):
        print("  ".join(row))
    print(sweep.folder / "sweep.html")
    raise typer.Exit(code)


def _split_launch(launch: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(launch))
    except ValueError as error:
        raise ConfigError(f"--launch {launch}: {error}; close the quotation") from None


def _sweep(
    recipe: str, overrides: Sequence[str], seeds: Sequence[int], out: str | None, options: Mapping[str, Any]
) -> Sweep:
    """Return the sweep; `ConfigError` for settings of any run that are invalid."""
    from paragan.runs.folder import run_name
    from paragan.runs.sweep_grid import expand_grid
    from paragan.runs.sweep_plan import Sweep

    if out is not None and is_url(out):
        raise ConfigError(f"--out {out}: a sweep needs a local folder; pass --out DIR")
    common, runs = expand_grid(overrides, seeds)
    configs = [load_config(recipe, [*common, *run.settings]) for run in runs]
    lengths = {config.train.kimg for config in configs}
    if len(lengths) > 1:
        raise ConfigError("train.kimg differs between runs of the sweep; give it one value")
    folder = Path(out or f"runs/{run_name(recipe)}-sweep")
    about = {"kimg": lengths.pop(), "timeout_s": configs[0].train.timeout_s, **options}
    return Sweep(recipe, common, runs, folder, **about)
