"""Arguments and options that several commands share."""

import re
import sys
from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from paragan.config.sections import ANY
from paragan.core.addresses import is_url
from paragan.core.errors import ConfigError
from paragan.core.outside_code import CodeFolder
from paragan.core.registry import check_extension


def run_path(text: str, checkpoints: bool = True, follow: bool = False) -> Path:
    """Return a path, or the local copy of the run at an address; arguments as of `open_copy`."""
    if not is_url(text):
        return Path(text)
    check_extension("buckets", text)
    from paragan.extensions.buckets.remote_run import open_copy

    return open_copy(text, checkpoints, follow)


def record_path(text: str) -> Path:
    """Return a path, or the local copy of a run without checkpoints, which follows the run."""
    return run_path(text, checkpoints=False, follow=True)


_RUN = "A run folder, made by `train`, or its address (s3://…)."
Run = Annotated[Path, typer.Argument(metavar="RUN", parser=run_path, help=_RUN)]
RunRecord = Annotated[Path, typer.Argument(metavar="RUN", parser=record_path, help=_RUN)]
_RUN_OR_FILE = "A run folder or its address, or a file written by `export`."
RunOrFile = Annotated[Path, typer.Argument(metavar="RUN|FILE", parser=run_path, help=_RUN_OR_FILE)]
_WORDS = "A recipe (`list recipes` shows all), a .yaml file or a run folder; then settings, such as train.kimg=100."
Words = Annotated[list[str] | None, typer.Argument(metavar="RECIPE key.path=value", help=_WORDS)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Random seed of latents and labels (default: the run's).")]
_STEPS = "Solver steps, for generators that sample by a solver, such as flow_unet (default: model.steps)."
Steps = Annotated[int | None, typer.Option(min=1, max=1000, help=_STEPS)]
Trust = Annotated[bool, typer.Option("--trust", help="Run the Python code that the config names, if you trust it.")]
_CODE = "Folder where the custom code of the run is now, if it was moved; add --trust if it also changed."
Code = Annotated[Path | None, typer.Option("--code", metavar="DIR", help=_CODE)]
Direction = Annotated[str | None, typer.Option(metavar="NAME", help="One direction of CycleGAN: a_to_b or b_to_a.")]
Best = Annotated[bool, typer.Option("--best", help="Use the checkpoint with the best score instead of the newest.")]
_SHAPE = "Shape of an image (default: the recipe's data, or 3x32x32)."
Shape = Annotated[str | None, typer.Option(metavar="CxHxW", help=_SHAPE)]
Classes = Annotated[int | None, typer.Option(min=0, help="Number of classes (default: the recipe's data, or 0).")]


def trusted(trust: bool, code: Path | None) -> bool | CodeFolder:
    """Return the values of `--trust` and `--code` for a run or an exported file."""
    return code_folder(trust, code) or trust


def trusted_recipe(trust: bool, code: Path | None) -> Container[str] | None:
    """Return the values of `--trust` and `--code` for a recipe or a run folder."""
    return code_folder(trust or None, code) or (ANY if trust else None)  # None: trusted unless a run wrote the file


def code_folder(trust: bool | None, code: Path | None) -> CodeFolder | None:
    """Return the folder of `--code`, whose modules can then be imported. trust: as in `CodeFolder`."""
    if code is None:
        return None
    if not code.is_dir():
        raise ConfigError(f"--code: there is no folder {code}; pass the folder where the custom code is now")
    sys.path.append(str(code.resolve()))
    return CodeFolder(code, trust)


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return the value of `--shape`."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}", text):
        raise ConfigError(f"--shape: {text!r} is not CHANNELSxHEIGHTxWIDTH, such as 3x32x32")
    channels, height, width = map(int, text.split("x"))
    return channels, height, width
