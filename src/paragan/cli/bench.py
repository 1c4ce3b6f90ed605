"""`paragan bench`: benchmarks of a source checkout."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import paragan
from paragan.core.errors import ConfigError

# Options after NAME belong to the benchmark, as in `bench table1 --help`.
PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}


_FOLDERS = {"table1": "table1", "cellular": "cellular_table"}  # in benchmarks/
_NAME = "table1 (techniques of the Colossal-AI pix2pix poster) or cellular (training of a grid)."
Name = Annotated[Literal["table1", "cellular"], typer.Argument(metavar="NAME", help=_NAME)]
_ARGUMENTS = "Options of the benchmark; `bench NAME --help` lists them."
Arguments = Annotated[list[str] | None, typer.Argument(metavar="OPTIONS", help=_ARGUMENTS)]


def bench(context: typer.Context, name: Name, arguments: Arguments = None) -> None:
    """Run a benchmark on this machine. Needs a source checkout."""
    root = Path(paragan.__file__).resolve().parents[2]
    folder = _FOLDERS[name]
    if not (root / "benchmarks" / folder / "__main__.py").is_file():
        hint = "benchmarks need a source checkout; clone the repository to run it"
        raise ConfigError(f"bench {name}: {hint}")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    app = importlib.import_module(f"benchmarks.{folder}.__main__").app
    command = typer.main.get_command(app)
    program = f"{context.command_path} {name}"
    command(list(arguments or ()), prog_name=program, standalone_mode=False)
