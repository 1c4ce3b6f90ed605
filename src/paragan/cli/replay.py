"""`paragan replay`: repetition of an asynchronous run, compared bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import Run, Trust

_OUT = "Folder of the repetition (default: RUN/replay)."
Out = Annotated[Path | None, typer.Option(metavar="DIR", help=_OUT)]


def replay(path: Run, out: Out = None, trust: Trust = False) -> None:
    """Repeat an asynchronous run and compare it bit for bit.

    Repeats the run from its start to its first stop, in the recorded order of updates.
    Exit code 0: equal bit for bit; 2: different, with the first tensor that differs.
    """
    from paragan.runs.replay import replay_run

    code, text = replay_run(path, out, trust)
    if text:
        print(text)
    raise typer.Exit(code)
