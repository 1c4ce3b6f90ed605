"""`paragan replay`: repetition of a step of a run, compared bit for bit."""

from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import Code, Run, Trust, trusted

_STEP = "Step to repeat, from 1 (default: the last recorded one)."
Step = Annotated[int | None, typer.Option(min=1, metavar="N", help=_STEP)]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the repeated steps (default: RUN/replay).")]


def replay(path: Run, step: Step = None, out: Out = None, trust: Trust = False, code: Code = None) -> None:
    """Repeat a step of a run and compare it bit for bit.

    Trains from the nearest checkpoint before the step to the next recorded losses or checkpoint.
    Exit code 0: equal bit for bit; 2: different, with the first loss or tensor that differs.
    """
    from paragan.extensions.replay.replay import replay_run

    exit_code, text = replay_run(path, step, out, trusted(trust, code))
    if text:
        print(text)
    raise typer.Exit(exit_code)
