"""Command line of `python -m benchmarks.cellular_table`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cellular_table.rows import CellularOptions
from benchmarks.command import run_command

Mnist = Annotated[str | None, typer.Option("--mnist", metavar="DIR", help="Folder with MNIST's four idx files.")]
Shapes = Annotated[
    str,
    typer.Option(metavar="RxC,...", help="Grids, rows by columns; weak scaling is relative to the first."),
]
Batches = Annotated[int, typer.Option(min=1, help="Batches per iteration (600 in the slides).")]
Iterations = Annotated[int, typer.Option(min=1, help="Iterations per grid, after one warm-up iteration.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="Number of worker processes (default: one per core)."),
]
Upstream = Annotated[
    bool,
    typer.Option(help="Also measure a loop written like the public implementation; the slowest part."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Output folder for the tables (.md, .json).")]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def cellular(
    mnist: Mnist = None,
    shapes: Shapes = "2x2,3x3,4x4",
    batches: Batches = 50,
    iterations: Iterations = 2,
    workers: Workers = None,
    upstream: Upstream = True,
    out: Out = Path("benchmarks/results"),
) -> None:
    """Measure cellular training: seconds per routine on one core and on workers, and weak scaling.

    An upstream-style loop is measured next to them.
    """
    names = tuple(filter(None, shapes.split(",")))
    options = CellularOptions(mnist, names, batches, iterations, workers, upstream)
    options.grids()
    from benchmarks.cellular_table.run import run

    run(options, out)


if __name__ == "__main__":
    sys.exit(run_command(app, "cellular_table"))
