"""The command line. Verbs live in the files beside; those that compute import torch inside."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from paragan import __version__
from paragan.cli import data, listing
from paragan.cli.arguments import AsJson, Best, Run, Seed, Trust
from paragan.cli.bench import PASS_ON, bench
from paragan.cli.doctor import doctor
from paragan.cli.export import export
from paragan.cli.new import new
from paragan.cli.replay import replay
from paragan.cli.report import report
from paragan.cli.run_arguments import ANY_OPTION, home_expanded, read_words, run_name
from paragan.cli.sample import sample
from paragan.cli.verify import verify
from paragan.cli.watch import watch
from paragan.cli.worker import worker
from paragan.config.config_reader import ANY
from paragan.core.command import program_command
from paragan.core.errors import ConfigError, ParaganError, outcome
from paragan.core.printable import to_printable

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RECIPE key.path=value", help="A name from `list recipes`, a .yaml file or a run folder; then settings."
    ),
]
NumImages = Annotated[int | None, typer.Option(min=6, help="Samples to score; the run's own number unless given.")]
Shelf = Annotated[str | None, typer.Argument(metavar="SHELF", help="models, losses, recipes, ...; all unless given.")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. What the user can mend is said in a line, without a traceback."""
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:  # a reader that left, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        code, line = outcome(error)
        if code == 1:
            raise
        if line:
            print(to_printable(line), file=sys.stderr)
        return code


def _run(argv: list[str]) -> int:
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))  # local networks are found; a local jinja2.py never replaces the library
    try:
        code = typer.main.get_command(app)(
            [*map(home_expanded, argv)], prog_name=program_command(), standalone_mode=False
        )
    except typer.Abort:
        return 130
    except TyperException as error:
        return _misused(error)
    return code if isinstance(code, int) else 0


def _misused(error: TyperException) -> int:
    """What is wrong with the words of a command, in one line; the whole help where none were given."""
    if error.format_message().startswith("Usage:"):
        print(to_printable(error.format_message()), file=sys.stderr)
        return ParaganError.exit_code
    context = getattr(error, "ctx", None)
    verb = program_command() if context is None else context.command_path
    text = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    raise ConfigError(f"{verb}: {text}; `{verb} --help` tells what there is")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"paragan {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


@app.callback()
def _paragan(version: Version = False) -> None:
    """Train generative adversarial networks, from one CPU core to a cluster, from one config."""


@app.command(context_settings=ANY_OPTION)
def train(
    context: typer.Context,
    words: Words = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder; runs/RECIPE unless given.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew; a former run is kept aside.")] = False,
    change: Annotated[bool, typer.Option("--change", help="Resume with other learning rates or schedules.")] = False,
    trust: Trust = False,
) -> None:
    """Train a recipe (default: digits), or resume a run folder.

    Ctrl-C saves a checkpoint; the same command again resumes.
    """
    recipe, overrides, folder = read_words(words, context)
    if out is not None and out == Path(""):
        raise ConfigError("--out: found no folder name, expected one such as runs/mine")
    out = out or folder or Path("runs") / run_name(recipe)
    overrides += ["train.change_rates=true"] if change else []
    config = listing.loaded(recipe, overrides, ANY if trust else None)
    from paragan.cli.train_launch import start

    raise typer.Exit(start(config, recipe, overrides, out, fresh))


@app.command("eval")
def evaluate(
    path: Run,
    as_json: AsJson = False,
    num_images: NumImages = None,
    seed: Seed = None,
    best: Best = False,
    trust: Trust = False,
) -> None:
    """Score a run's averaged generator."""
    from paragan.cli.evaluate import run

    raise typer.Exit(run(path, as_json, num_images, seed, trust, best))


@app.command("list")
def list_names(shelf: Shelf = None, as_json: AsJson = False) -> None:
    """List the names that a config may use."""
    if shelf is None:
        listing.show_shelves(as_json)
    else:
        listing.show_shelf(shelf, as_json)


@app.command(context_settings=ANY_OPTION)
def config(
    context: typer.Context,
    words: Words = None,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="With meanings, values, defaults.")] = False,
) -> None:
    """Print every setting a run would have."""
    recipe, overrides, _ = read_words(words, context)
    show = listing.explain_config if explain else listing.show_config
    show(recipe, overrides, as_json)


app.command()(sample)
app.command()(export)
app.command()(report)
app.command()(watch)
app.command()(replay)
app.command()(worker)
app.command()(new)
app.command()(verify)
app.command()(doctor)
app.add_typer(data.app, name="data")
app.command(context_settings=PASS_ON, no_args_is_help=True)(bench)


if __name__ == "__main__":
    sys.exit(main())
