"""Progress for a person: a bar on a terminal, one plain line every ten seconds anywhere else."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from rich.console import Console as Rich
from rich.progress import BarColumn, Progress, TextColumn

PLAIN_PERIOD_S = 10.0


@dataclass(frozen=True)
class Pace:
    """How fast a run goes. images of `total`; rate in images/s; waiting: share of the time spent waiting for data."""

    images: int
    total: int
    rate: float
    waiting: float

    def __str__(self) -> str:
        left = (self.total - self.images) / self.rate if self.rate else 0.0
        return f"{self.rate:.0f} images/s  ETA {clock_time(left)}  data wait {self.waiting:.0%}"


class Console:
    """`say` prints a line; `progress` moves the bar or, off a terminal, prints at most one line per period."""

    def __init__(self) -> None:
        self._rich = Rich(file=sys.stdout, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._last_plain = time.monotonic()

    def say(self, text: str) -> None:
        self._rich.print(text, markup=False)

    def progress(self, pace: Pace, told: str) -> None:
        if self._rich.is_terminal:
            self._move(pace, told)
        elif time.monotonic() - self._last_plain >= PLAIN_PERIOD_S:
            self._last_plain = time.monotonic()
            self.say(f"{pace.images / 1000:.1f}/{pace.total / 1000:.0f} kimg  {pace}  {told}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _move(self, pace: Pace, told: str) -> None:
        if self._bar is None:
            columns = (
                TextColumn("{task.percentage:>3.0f}%"),
                BarColumn(None),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Progress(*columns, console=self._rich, transient=True)
            self._bar.add_task("", total=pace.total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=pace.images, description=f"{pace}  {told}")


def clock_time(seconds: float) -> str:
    """H:MM:SS, or M:SS below an hour."""
    minutes, s = divmod(int(seconds + 0.5), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
