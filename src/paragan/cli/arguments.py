"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by `train`.")]
RunOrFile = Annotated[Path, typer.Argument(metavar="RUN|FILE", help="A run folder, or a file written by `export`.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RECIPE key.path=value",
        help="A recipe (see `list recipes`), a .yaml file or a run folder, and settings.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int | None, typer.Option(help="Random seed of latents and labels (default: the run's).")]
Trust = Annotated[bool, typer.Option("--trust", help="Import the custom code that the run's config names.")]
Best = Annotated[bool, typer.Option("--best", help="Use the checkpoint with the best score instead of the newest.")]
