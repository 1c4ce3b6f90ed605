"""`paragan verify`: the laws on custom networks, as a table with the reason of each failure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from paragan.cli.arguments import AsJson, Classes, Code, Shape, Trust, code_folder, parse_shape
from paragan.cli.progress import show_lines
from paragan.cli.table import format_table, terminal_width
from paragan.config.overrides import is_override
from paragan.core.errors import ConfigError
from paragan.core.printable import to_printable

if TYPE_CHECKING:
    from paragan.extensions.verify.law_result import LawResult

_HEAD = ("law", "strategy", "result", "difference", "reason")
_RESULTS = ("held", "FAILED", "exempt", "not run")
_WORDS = "Module with Generator and Discriminator, or a recipe; then settings as key.path=value."
Words = Annotated[list[str], typer.Argument(metavar="DOTTED.PATH|RECIPE", help=_WORDS)]
Ranks = Annotated[int, typer.Option(min=1, max=8, help="Processes for the checks on several ranks; 1 skips them.")]


def verify(
    words: Words,
    *,
    ranks: Ranks = 2,
    shape: Shape = None,
    classes: Classes = None,
    as_json: AsJson = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Check that networks train the same on N ranks and after a resume.

    Needs no data. Exit code 2: at least one check failed.
    """
    targets = [word for word in words if not is_override(word)]
    overrides = tuple(word for word in words if is_override(word))
    if len(targets) != 1:
        raise ConfigError("verify needs exactly one module such as mine.nets, or one recipe")
    from paragan.extensions.verify.verify_networks import VerifyRequest, run_verification

    request = VerifyRequest(
        target=targets[0],
        overrides=overrides,
        shape=None if shape is None else parse_shape(shape),
        classes=classes,
        ranks=ranks,
        trust=trust,
        code=code_folder(trust or None, code),
    )
    results = []
    with show_lines() as log:
        for result in run_verification(request):
            results.append(result)
            log(to_printable(f"{result.law}, {result.strategy}: {result.result}"))
    if as_json:
        print(json.dumps([asdict(result) for result in results], indent=1))
    else:
        print(to_printable(format_results(results, terminal_width())))
    raise typer.Exit(2 if any(result.result == "FAILED" for result in results) else 0)


def format_results(results: Sequence[LawResult], width: int | None = None) -> str:
    """Return a table of the results and their counts. width: to which reasons are folded."""
    rows = [_HEAD, *((r.law, r.strategy, r.result, _number(r.difference), r.reason) for r in results)]
    counts = Counter[str](result.result for result in results)
    summary = ", ".join(f"{counts[kind]} {kind}" for kind in _RESULTS if counts[kind])
    return f"{format_table(rows, width)}\n{summary}"


def _number(difference: float | None) -> str:
    if difference is None:
        return ""
    return "0" if difference == 0 else f"{difference:.0e}"
