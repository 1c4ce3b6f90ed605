"""`paragan data`: checks of a data set before training, and its conversion into shards."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from paragan.cli.arguments import AsJson
from paragan.cli.prepare import prepare_command
from paragan.cli.progress import show_progress
from paragan.core.printable import to_printable

if TYPE_CHECKING:
    from paragan.datasets.preparation.dataset_check import DatasetReport

app = typer.Typer(no_args_is_help=True, help="Check images before training on them, or pack them into shards.")
_MAX_LISTED = 10

_IMAGES = "A folder, .zip or .tar file of images, or a folder of shards."
Images = Annotated[str, typer.Argument(metavar="PATH", help=_IMAGES)]
_SIZE = "Image size to train with (default: chosen from the images)."
Size = Annotated[int | None, typer.Option(metavar="PIXELS", help=_SIZE)]


app.command("prepare")(prepare_command)


@app.command()
def check(path: Images, size: Size = None, as_json: AsJson = False) -> None:
    """Decode all images, report problems, and print a command to train.

    Reports sizes, formats, classes, duplicates and damaged files; of shards, all bytes are compared
    with their sha256. Exit code 2: images are damaged, or none can be decoded.
    """
    from paragan.datasets.preparation import dataset_check

    with show_progress("images read") as update:
        report = dataset_check.check_dataset(path, size, update)
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        print("\n".join(to_printable(line.replace("\n", "?")) for line in format_report(report)))
    if report.damaged or not report.command:
        raise typer.Exit(2)


def format_report(report: DatasetReport) -> list[str]:
    """Return the report as lines of text."""
    low, middle, high = report.sides
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.kinds.items())
    lines = [
        f"{report.path}: {report.images:,} images",
        f"  shorter side  {low:,} to {high:,} px, median {middle:,}; {report.not_square:,} not square",
        f"  formats       {kinds or 'none'}",
        f"  classes       {_classes(report.classes)}",
        *(f"  warning: {line}" for line in report.warnings),
        f"  duplicates    {len(report.duplicates):,}",
        *_first_lines([f"{name} equals {earlier}" for name, earlier in report.duplicates]),
        f"  damaged       {len(report.damaged):,}",
        *_first_lines(report.damaged),
    ]
    if report.advice:
        lines += ["", "Consider:", *(f"  - {line}" for line in report.advice)]
    last = f"To train: {report.command}" if report.command else "There is nothing to train on."
    return [*lines, "", last]


def _first_lines(lines: list[str]) -> list[str]:
    first = [f"    {line}" for line in lines[:_MAX_LISTED]]
    return [*first, f"    and {len(lines) - _MAX_LISTED:,} more"] if len(lines) > _MAX_LISTED else first


def _classes(classes: dict[str, int]) -> str:
    if not classes:
        return "none (no sub-folders, or one)"
    first = ", ".join(f"{name} {count:,}" for name, count in list(classes.items())[:_MAX_LISTED])
    return f"{len(classes)}: {first}{', …' if len(classes) > _MAX_LISTED else ''}"
