"""`paragan watch`: a run in the terminal, read from its record while another process writes it."""

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

_LOOK_S, _PLAIN_S = 1.0, 10.0

Once = Annotated[bool, typer.Option("--once", help="Show the run as it is and end.")]


def watch(run: Run, once: Once = False) -> None:
    """Follow a run in the terminal until it ends or Ctrl-C."""
    from rich.console import Console

    from paragan.report.record import open_record
    from paragan.report.terminal import render_run, summary_line

    record, console = open_record(run), Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    record.read()
    with suppress(KeyboardInterrupt):
        if once:
            console.print(render_run(run, record.history))
        elif console.is_terminal:
            _live(run, record, console)
        else:
            _lines(run, record, lambda: print(summary_line(run, record.history), flush=True))


def _live(run: Path, record: Record, console: Console) -> None:
    from rich.live import Live

    from paragan.report.terminal import render_run

    with Live(render_run(run, record.history), console=console, auto_refresh=False) as screen:
        while not _ended(run, record):
            time.sleep(_LOOK_S)
            record.read()
            screen.update(render_run(run, record.history), refresh=True)


def _lines(run: Path, record: Record, say: Callable[[], None]) -> None:
    say()
    last = time.monotonic()
    while not _ended(run, record):
        time.sleep(_LOOK_S)
        record.read()
        if time.monotonic() - last >= _PLAIN_S or _ended(run, record):
            last = time.monotonic()
            say()


def _ended(run: Path, record: Record) -> bool:
    """A silent run may go on yet, so it is watched further."""
    from paragan.report.run_state import run_state

    return run_state(run, record.history).word in ("finished", "stopped", "failed")
