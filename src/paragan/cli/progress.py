"""Progress on standard error: a bar on a terminal, otherwise a line every ten seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PERIOD_S = 10.0
Update = Callable[[float, int], None]  # (number done, with a share of the next one; total)


@contextmanager
def show_progress(unit: str) -> Iterator[Update]:
    """Yield a function of the number of items done and their total. unit: such as images."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _log_lines(unit)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(unit, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def show_lines() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line; the next one replaces it on a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield lambda line: status.update(Text(line))


def _log_lines(unit: str) -> Update:
    start = time.monotonic()
    last = start

    def update(done: float, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PERIOD_S and done < total:
            last = now
            left = (now - start) / done * (total - done)
            share = "" if done == int(done) else f" ({done / total:.0%})"
            line = f"{int(done):,} of {total:,} {unit}{share}, about {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)

    return update
