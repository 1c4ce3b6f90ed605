"""Arguments that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by `train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Seed = Annotated[int | None, typer.Option(help="Other latents and labels than the run's own.")]
Trust = Annotated[bool, typer.Option("--trust", help="Import the outside code that the run's config names.")]
Best = Annotated[bool, typer.Option("--best", help="The checkpoint with the best score, not the newest one.")]
