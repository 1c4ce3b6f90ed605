"""`paragan bench`: measurements that a user can repeat on a machine of his own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Measure on this machine what others have published.")

Facades = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="The facades, for pix2pix: a folder, .zip or .tar of pairs.")
]
Mnist = Annotated[
    str | None, typer.Option("--mnist", metavar="DIR", help="MNIST, for the vanilla GAN; 12,800 digits are an epoch.")
]
Images = Annotated[int, typer.Option(min=1, help="An epoch of pix2pix; a quarter of it (20 to 100) validates.")]
Epochs = Annotated[int, typer.Option(min=1, help="The losses told are means over the last one.")]
Rounds = Annotated[int, typer.Option(min=1, help="Pieces of an epoch; all rows make one before any makes the next.")]
Ranks = Annotated[
    int, typer.Option(min=1, max=8, help="Processes of data parallel and ZeRO; every batch is so many times as large.")
]
Digits = Annotated[str | None, typer.Option("--mnist", metavar="DIR", help="The folder of MNIST's four idx files.")]
Shapes = Annotated[
    str, typer.Option(metavar="RxC,...", help="Grids, rows by columns; the first is the base of growth.")
]
Batches = Annotated[int, typer.Option(min=1, help="Steps of an iteration; the slides have 600.")]
Iterations = Annotated[int, typer.Option(min=1, help="Of every grid, after one to warm up.")]
Workers = Annotated[int | None, typer.Option(min=1, max=256, help="Processes; one per core unless given.")]
Upstream = Annotated[bool, typer.Option(help="Beside it a loop as the public implementation has it; takes most time.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="For the table as .md, .json and .svg.")]
Tables = Annotated[Path, typer.Option("--out", metavar="DIR", help="For the tables as .md and .json.")]


@app.command()
def table1(
    images: Images = 400,
    epochs: Epochs = 1,
    data: Facades = None,
    mnist: Mnist = None,
    rounds: Rounds = 20,
    ranks: Ranks = 1,
    out: Out = Path("benchmarks/results"),
) -> None:
    """Colossal-AI's pix2pix: what data parallel, AMP, accumulation, clipping and ZeRO do to time, losses, quality."""
    from paragan.cli._table1 import run
    from paragan.cli._table1_rows import Asked

    run(Asked(images, epochs, data, mnist, rounds, ranks), out)


@app.command()
def cellular(
    mnist: Digits = None,
    shapes: Shapes = "2x2,3x3,4x4",
    batches: Batches = 50,
    iterations: Iterations = 2,
    workers: Workers = None,
    upstream: Upstream = True,
    out: Tables = Path("benchmarks/results"),
) -> None:
    """Cellular training: seconds by routine on one core and on workers, weak scaling, an upstream-style loop beside."""
    from paragan.cli._cellular_rows import Asked

    asked = Asked(mnist, tuple(filter(None, shapes.split(","))), batches, iterations, workers, upstream)
    asked.grids()
    from paragan.cli._cellular import run

    run(asked, out)
