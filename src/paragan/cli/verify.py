"""`paragan verify`: the laws on the user's own networks, as a table with the reason of each failure."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragan.cli.arguments import AsJson, Trust
from paragan.config.overrides import is_override
from paragan.core.errors import ConfigError
from paragan.core.printable import to_printable

if TYPE_CHECKING:
    from paragan.cli.verify_networks import VerifyRequest
    from paragan.verify.finding import LawResult

_HEAD = ("law", "strategy", "result", "difference", "reason")
_NARROWEST = 40  # of the last column
Words = Annotated[
    list[str],
    typer.Argument(metavar="DOTTED.PATH|RECIPE", help="Where Generator and Discriminator are, or a recipe; settings."),
]
Count = Annotated[int, typer.Option(min=1, max=8, help="Processes of the laws that need several; 1 leaves them out.")]
Shape = Annotated[
    str | None, typer.Option(metavar="CxHxW", help="Of one image; the recipe's data, or 3x32x32, unless given.")
]
Classes = Annotated[int | None, typer.Option(min=0, help="Of the data; the recipe's, or 0, unless given.")]


def verify(
    words: Words,
    *,
    ranks: Count = 2,
    shape: Shape = None,
    classes: Classes = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Check that networks train the same on several ranks.

    Also after a restart, and twice in a row. Needs no data.
    """
    targets = [word for word in words if not is_override(word)]
    overrides = tuple(word for word in words if is_override(word))
    if len(targets) != 1:
        found = " and ".join(targets) or "none"
        raise ConfigError(f"verify: found {found}, expected one module such as mine.nets, or one recipe")
    size = None if shape is None else _sizes(shape)
    from paragan.cli.verify_networks import VerifyRequest

    findings = list(told_of(_examined(VerifyRequest(targets[0], overrides, size, classes, ranks, trust))))
    print(json.dumps([asdict(f) for f in findings], indent=1) if as_json else to_printable(table(findings, _width())))
    raise typer.Exit(2 if any(finding.result == "FAILED" for finding in findings) else 0)


def _examined(asked: VerifyRequest) -> Iterator[LawResult]:
    from paragan.cli import verify_networks
    from paragan.verify import laws, on_ranks
    from paragan.verify.reference_run import exact_arithmetic

    command = [sys.executable, "-P", "-m", verify_networks.__name__, asked.text()]
    warnings.filterwarnings("ignore", module="torch")  # of strategies that the user has not chosen
    tried = verify_networks.subject(asked)
    with tempfile.TemporaryDirectory(prefix="paragan-verify-") as folder, exact_arithmetic():
        several = on_ranks.RankProcesses([*command, folder], asked.ranks, Path(folder))
        comparisons = (laws.parts, laws.stopping, laws.one_is_none, several)
        yield from laws.run_laws(tried, comparisons)


def told_of(findings: Iterable[LawResult]) -> Iterator[LawResult]:
    """The same; how far it is is told on stderr: a line per row, on a terminal one that is written over."""
    live = sys.stderr.isatty()
    for finding in findings:
        line = to_printable(f"{finding.law}, {finding.strategy}: {finding.result}")
        print(f"\r\x1b[K{line}" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)
        yield finding
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def table(findings: Sequence[LawResult], width: int | None = None) -> str:
    """A line per finding, and how many of each kind. width: of the terminal, for which reasons are folded."""
    rows = [_HEAD, *((f.law, f.strategy, f.result, _number(f.difference), f.reason) for f in findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    indent = sum(widths) + 2 * len(widths)
    lines = []
    for row in rows:
        start = "".join(f"{cell:<{size + 2}}" for cell, size in zip(row, widths, strict=False))
        room = None if width is None else max(_NARROWEST, width - indent)
        folded = [row[-1]] if room is None else textwrap.wrap(row[-1], room) or [""]
        lines += [(start + folded[0]).rstrip(), *(" " * indent + more for more in folded[1:])]
    counts = {result: sum(f.result == result for f in findings) for result in ("held", "FAILED", "exempt", "not run")}
    return "\n".join([*lines, ", ".join(f"{count} {result}" for result, count in counts.items() if count)])


def _number(difference: float | None) -> str:
    return "" if difference is None else "0" if difference == 0 else f"{difference:.0e}"


def _sizes(text: str) -> tuple[int, int, int]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}", text):
        raise ConfigError(f"--shape: found {text!r}, expected channels, height and width such as 3x32x32")
    channels, height, width = map(int, text.split("x"))
    return channels, height, width


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
