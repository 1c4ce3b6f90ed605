"""`paragan compare`: several runs in one page and one table."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson, record_path
from paragan.core.files import write_text

Runs = Annotated[list[Path], typer.Argument(metavar="RUN RUN...", parser=record_path, help="Run folders, 2 to 15.")]
Out = Annotated[Path, typer.Option(metavar="FILE.html", help="Output file.")]


def compare_runs(runs: Runs, out: Out = Path("compare.html"), as_json: AsJson = False) -> None:
    """Compare runs: settings, scores, curves and samples.

    Writes one page and prints one table.
    """
    from rich.console import Console

    from paragan.report.comparison import read_comparison
    from paragan.report.comparison_page import render_comparison_page
    from paragan.report.terminal_comparison import comparison_json, render_comparison

    comparison = read_comparison(runs)
    write_text(out, render_comparison_page(comparison))
    if as_json:
        size = {"path": str(out), "bytes": out.stat().st_size}
        print(json.dumps(size | comparison_json(comparison)))
        return
    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(render_comparison(comparison))
    print(out)
