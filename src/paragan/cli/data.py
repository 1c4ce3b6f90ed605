"""`paragan data`: checks of a data set before training."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from paragan.cli.arguments import AsJson
from paragan.cli.progress import show_progress
from paragan.core.printable import to_printable

if TYPE_CHECKING:
    from paragan.datasets._dataset_check import DatasetReport

app = typer.Typer(no_args_is_help=True, help="Check images before training on them.")

_IMAGES = "A folder of images, a .zip of one, or an .npz file."
Images = Annotated[str, typer.Argument(metavar="PATH", help=_IMAGES)]
_SIZE = "Image size to train with (default: chosen from the images)."
Size = Annotated[int | None, typer.Option(metavar="PIXELS", help=_SIZE)]


@app.callback()
def _data() -> None:
    """Make `check` a subcommand although it is the only one."""


@app.command()
def check(path: Images, size: Size = None, as_json: AsJson = False) -> None:
    """Read every image, and print warnings and the command to train.

    Reports sizes, formats, classes, duplicates and damaged files. Exit code 2: the data must be
    changed before training.
    """
    from paragan.datasets import _dataset_check

    with show_progress("images read") as update:
        report = _dataset_check.check_dataset(path, size, update)
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        print("\n".join(to_printable(line.replace("\n", "?")) for line in format_report(report)))
    if report.num_damaged or not report.command:
        raise typer.Exit(2)


def format_report(report: DatasetReport) -> list[str]:
    """Return the report as lines of text."""
    low, middle, high = report.sides
    by_count = sorted(report.kinds.items(), key=lambda entry: -entry[1])
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in by_count)
    lines = [
        f"{report.path}: {report.images:,} images",
        f"  shorter side  {low:,} to {high:,} px, median {middle:,}; {report.not_square:,} not square",
        f"  formats       {kinds or 'none'}",
        f"  classes       {_classes(report.classes)}",
        *(f"  warning: {line}" for line in report.warnings),
        f"  duplicates    {report.num_duplicates:,}",
        *(f"    {name} equals {earlier}" for name, earlier in report.duplicates),
        f"  damaged       {report.num_damaged:,}",
        *(f"    {line}" for line in report.damaged),
    ]
    if report.num_damaged > len(report.damaged):
        lines.append(f"    and {report.num_damaged - len(report.damaged):,} more")
    if report.advice:
        lines += ["", "Consider:", *(f"  - {line}" for line in report.advice)]
    last = f"To train: {report.command}" if report.command else "There is nothing to train on."
    return [*lines, "", last]


def _classes(classes: dict[str, int]) -> str:
    if not classes:
        return "none (no sub-folders, or one)"
    first = ", ".join(f"{name} {count:,}" for name, count in list(classes.items())[:10])
    return f"{len(classes)}: {first}{', …' if len(classes) > 10 else ''}"
