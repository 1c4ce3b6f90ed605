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
Out = Annotated[Path, typer.Option(metavar="DIR", help="For the table as .md, .json and .svg.")]


@app.callback()
def _bench() -> None:
    """Keeps `table1` a verb of its own while it is the only one."""


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
