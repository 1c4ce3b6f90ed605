"""`paragan watch`: a live view of a run in the terminal, read from its record."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragan.cli.arguments import Run

if TYPE_CHECKING:
    from rich.console import Console

    from paragan.report.record import Record

_POLL_S = 1.0
_LINE_PERIOD_S = 10.0  # if standard output is not a terminal

Once = Annotated[bool, typer.Option("--once", help="Print the current state and exit.")]


def watch(run: Run, once: Once = False) -> None:
    """Follow a run in the terminal until it ends or Ctrl-C."""
    from rich.console import Console

    from paragan.report.record import open_record
    from paragan.report.terminal import render_run, summary_line

    record = open_record(run)
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    record.read()
    with suppress(KeyboardInterrupt):
        if once:
            console.print(render_run(run, record.history))
        elif console.is_terminal:
            _update_view(run, record, console)
        else:
            _print_lines(run, record, lambda: print(summary_line(run, record.history), flush=True))


def _update_view(run: Path, record: Record, console: Console) -> None:
    from rich.live import Live

    from paragan.report.terminal import render_run

    with Live(render_run(run, record.history), console=console, auto_refresh=False) as screen:
        while not _has_ended(run, record):
            time.sleep(_POLL_S)
            record.read()
            screen.update(render_run(run, record.history), refresh=True)


def _print_lines(run: Path, record: Record, print_line: Callable[[], None]) -> None:
    print_line()
    last = time.monotonic()
    while not _has_ended(run, record):
        time.sleep(_POLL_S)
        record.read()
        if time.monotonic() - last >= _LINE_PERIOD_S or _has_ended(run, record):
            last = time.monotonic()
            print_line()


def _has_ended(run: Path, record: Record) -> bool:
    """Return whether the run has ended. A run without new records may still be training."""
    from paragan.report.run_state import run_state

    return run_state(run, record.history).word in ("finished", "stopped", "failed")
