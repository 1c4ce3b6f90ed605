"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from paragan.core.errors import ConfigError

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by `train`.")]
_RUN_OR_FILE = "A run folder, or a file written by `export`."
RunOrFile = Annotated[Path, typer.Argument(metavar="RUN|FILE", help=_RUN_OR_FILE)]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RECIPE key.path=value",
        help="A recipe (see `list recipes`), a .yaml file or a run folder, and settings.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SEED = "Random seed of latents and labels (default: the run's)."
Seed = Annotated[int | None, typer.Option(help=_SEED)]
_TRUST = "Import the custom code that the run's config names."
Trust = Annotated[bool, typer.Option("--trust", help=_TRUST)]
_BEST = "Use the checkpoint with the best score instead of the newest."
Best = Annotated[bool, typer.Option("--best", help=_BEST)]
_SHAPE = "Shape of an image (default: the recipe's data, or 3x32x32)."
Shape = Annotated[str | None, typer.Option(metavar="CxHxW", help=_SHAPE)]
_CLASSES = "Number of classes (default: the recipe's data, or 0)."
Classes = Annotated[int | None, typer.Option(min=0, help=_CLASSES)]


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return the value of `--shape`."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}", text):
        raise ConfigError(f"--shape: {text!r} is not CHANNELSxHEIGHTxWIDTH, such as 3x32x32")
    channels, height, width = map(int, text.split("x"))
    return channels, height, width
