"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from paragan.core.addresses import is_url
from paragan.core.errors import ConfigError


def run_path(text: str, checkpoints: bool = True, follow: bool = False) -> Path:
    """Return a path, or the local copy of the run at an address; arguments as of `open_copy`."""
    if not is_url(text):
        return Path(text)
    from paragan.runs.remote_run import open_copy

    return open_copy(text, checkpoints, follow)


def record_path(text: str) -> Path:
    """Return a path, or the local copy of a run without checkpoints, which follows the run."""
    return run_path(text, checkpoints=False, follow=True)


_RUN = "A run folder, made by `train`, or its address (s3://…)."
Run = Annotated[Path, typer.Argument(metavar="RUN", parser=run_path, help=_RUN)]
RunRecord = Annotated[Path, typer.Argument(metavar="RUN", parser=record_path, help=_RUN)]
_RUN_OR_FILE = "A run folder or its address, or a file written by `export`."
RunOrFile = Annotated[Path, typer.Argument(metavar="RUN|FILE", parser=run_path, help=_RUN_OR_FILE)]
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
_STEPS = "Solver steps of a generator that has them, such as flow_unet (default: model.steps)."
Steps = Annotated[int | None, typer.Option(min=1, max=1000, help=_STEPS)]
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
