"""Command line of `python -m benchmarks.table1`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import run_command
from benchmarks.table1.rows import Table1Options
from benchmarks.table1.run import run

Facades = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Facades for pix2pix: a folder, .zip or .tar of image pairs."),
]
Mnist = Annotated[
    str | None,
    typer.Option("--mnist", metavar="DIR", help="MNIST for the vanilla GAN; an epoch is 12,800 digits."),
]
Images = Annotated[
    int,
    typer.Option(min=1, help="Images per pix2pix epoch; a quarter as many (20 to 100) are used for validation."),
]
Epochs = Annotated[int, typer.Option(min=1, help="Number of epochs; reported losses are means over the last.")]
Rounds = Annotated[
    int,
    typer.Option(min=1, help="Rounds per epoch; all rows run one round before any row starts the next."),
]
Ranks = Annotated[
    int,
    typer.Option(min=1, max=8, help="Processes for data parallel and ZeRO; the global batch grows with it."),
]
OnlyPoster = Annotated[
    bool,
    typer.Option("--only-poster", help="Of pix2pix, only the poster's techniques: half of the time."),
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Output folder for the table (.md, .json, .svg).")]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def table1(
    images: Images = 400,
    epochs: Epochs = 1,
    data: Facades = None,
    mnist: Mnist = None,
    rounds: Rounds = 20,
    ranks: Ranks = 1,
    only_poster: OnlyPoster = False,
    out: Out = Path("benchmarks/results"),
) -> None:
    """Measure the poster's training techniques on pix2pix and a vanilla GAN.

    Data parallel, AMP, accumulation, clipping and ZeRO: epoch time, losses and quality against a baseline.
    """
    run(Table1Options(images, epochs, data, mnist, rounds, ranks, only_poster), out)


if __name__ == "__main__":
    sys.exit(run_command(app, "table1"))
