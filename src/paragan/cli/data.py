"""`paragan data`: a look at pictures before training on them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from paragan.cli.arguments import AsJson
from paragan.core.printable import to_printable

if TYPE_CHECKING:
    from paragan.datasets._dataset_check import DatasetReport

_EVERY_S = {True: 2.0, False: 10.0}  # on a terminal, and off it

app = typer.Typer(no_args_is_help=True, help="Look at your own pictures before you train on them.")

Pictures = Annotated[str, typer.Argument(metavar="PATH", help="A folder of pictures, a .zip of one, or an .npz file.")]
Size = Annotated[int | None, typer.Option(metavar="PIXELS", help="To train with; the usual for these unless given.")]


@app.callback()
def _data() -> None:
    """Keeps `check` a verb of its own while it is the only one."""


@app.command()
def check(path: Pictures, size: Size = None, as_json: AsJson = False) -> None:
    """Read every picture: damaged, sizes, kinds, duplicates, classes, and the command to train. Exit 2: must change."""
    import json
    from dataclasses import asdict

    from paragan.datasets import _dataset_check

    found = _dataset_check.check_dataset(path, size, _progress())
    print(
        json.dumps(asdict(found))
        if as_json
        else "\n".join(to_printable(line.replace("\n", "?")) for line in lines(found))
    )
    if found.num_damaged or not found.command:
        raise typer.Exit(2)


def lines(found: DatasetReport) -> list[str]:
    """What was found, for people."""
    low, middle, high = found.sides
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.kinds.items(), key=lambda entry: -entry[1]))
    head = [
        f"{found.path}: {found.images:,} pictures",
        f"  shorter side  {low:,} to {high:,} px, median {middle:,}; {found.not_square:,} not square",
        f"  kinds         {kinds or 'none'}",
        f"  classes       {_classes(found.classes)}",
        *(f"  warning: {line}" for line in found.warnings),
        f"  duplicates    {found.num_duplicates:,}",
        *(f"    {name} is {earlier}" for name, earlier in found.duplicates),
        f"  damaged       {found.num_damaged:,}",
        *(f"    {line}" for line in found.damaged),
    ]
    if found.num_damaged > len(found.damaged):
        head.append(f"    and {found.num_damaged - len(found.damaged):,} more")
    advice = ["", "To think about:", *(f"  - {line}" for line in found.advice)] if found.advice else []
    return [*head, *advice, "", f"To train: {found.command}" if found.command else "Nothing to train on as it is."]


def _classes(classes: dict[str, int]) -> str:
    if not classes:
        return "none (no sub-folders, or one)"
    shown = ", ".join(f"{name} {count:,}" for name, count in list(classes.items())[:10])
    return f"{len(classes)}: {shown}{', …' if len(classes) > 10 else ''}"


def _progress():
    """Says now and then how far the reading is and how long it will take, on standard error."""
    terminal = sys.stderr.isatty()
    began = last = time.monotonic()

    def say(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _EVERY_S[terminal] and done < total:
            last = now
            left = (now - began) / done * (total - done)
            print(f"{done:,} of {total:,} pictures read, {left:.0f} s to go", file=sys.stderr, flush=True)

    return say
