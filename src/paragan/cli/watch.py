"""`paragan watch`: a live view of a run in the terminal, read from its record."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paragan.cli.arguments import RunRecord

if TYPE_CHECKING:
    from paragan.report.record import Record

_POLL_S = 1.0
_LINE_PERIOD_S = 10.0  # if standard output is not a terminal
_ENDED = ("finished", "stopped", "failed")

Once = Annotated[bool, typer.Option("--once", help="Print the current state and exit.")]


def watch(run: RunRecord, once: Once = False) -> None:
    """Follow a run in the terminal until it ends or Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from paragan.report.record import open_record
    from paragan.report.terminal import render_run, summary_line

    record = open_record(run)
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    record.read()
    with suppress(KeyboardInterrupt):
        if once:
            console.print(render_run(run, record.history))
        elif console.is_terminal:
            with Live(render_run(run, record.history), console=console, auto_refresh=False) as screen:
                for _ in _updates(run, record, 0.0):
                    screen.update(render_run(run, record.history), refresh=True)
        else:
            print(summary_line(run, record.history), flush=True)
            for _ in _updates(run, record, _LINE_PERIOD_S):
                print(summary_line(run, record.history), flush=True)


def _updates(run: Path, record: Record, period_s: float) -> Iterator[None]:
    """Read the record until the run has ended; yield after each period, and at the end.

    A run without new records may still be training.
    """
    from paragan.report.run_state import run_state

    last = time.monotonic()
    while run_state(run, record.history).word not in _ENDED:
        time.sleep(_POLL_S)
        record.read()
        if time.monotonic() - last >= period_s or run_state(run, record.history).word in _ENDED:
            last = time.monotonic()
            yield
