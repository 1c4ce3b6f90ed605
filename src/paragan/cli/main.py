"""The command line. Verbs are declared here and live in the files beside; torch is imported only by those that compute."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from paragan import __version__
from paragan.cli import listing
from paragan.core import override
from paragan.core.errors import ConfigError, ParaganError
from paragan.core.interrupt import install

_DEFAULT_RECIPE = "digits"
_ENVIRONMENT = {  # what the user, not we, must mend
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}

app = typer.Typer(
    help="Train generative adversarial networks.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECIPE] [key.path=value]...", help="A name from `paragan list recipes` or a .yaml file; settings."),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `paragan train` makes it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version.")] = False) -> None:
    pass


@app.command()
def train(
    words: Words = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/RECIPE unless given.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew; a former run is kept aside.")] = False,
) -> int:
    """Train a recipe (digits unless named). The same command again goes on; Ctrl-C saves."""
    from paragan.config import load

    recipe, overrides = _recipe(words)
    config = load(recipe, overrides)
    with install() as interrupt:
        from paragan.cli.train import run

        name = Path(recipe).stem
        return run(config, name, out or Path("runs") / name, fresh, interrupt)
