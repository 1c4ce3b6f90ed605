"""Progress for a person: a bar on a terminal, one plain line every ten seconds anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from paragan.core.notes import Note
from paragan.core.printable import printable

PLAIN_PERIOD_S = 10.0


@dataclass(frozen=True)
class Options:
    """There are none."""


class Writer:
    """Tells of pictures, scores, advice and events as they come, and of steps by a bar or a line now and then."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._folder, self._total_kimg = folder, 0.0
        self._rich = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._last_plain = time.monotonic()

    def write(self, note: Note) -> None:
        values, kimg = note.values, f"{note.images / 1000:.1f} kimg"
        match note.kind:
            case "start":
                self._total_kimg = values["total_kimg"]
            case "step":
                self._progress(note)
            case "samples" if note.step == 0:
                where = self._folder / "samples"
                self._say(f"pictures  {where}, the first after {clock_time(note.seconds)}")
            case "score":
                self._say(f"{kimg}  {score_line(values)}")
            case "advice":
                self._say(f"{kimg}  advice: {values['means']} {values['try']}")
            case "event":
                self._say(f"{kimg}  {values['text']}")
            case "end":
                self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, text: str) -> None:
        self._rich.print(printable(text), markup=False)

    def _progress(self, note: Note) -> None:
        kimg, told = note.images / 1000, _told(note.values)
        if self._rich.is_terminal:
            self._move(kimg, told)
        elif time.monotonic() - self._last_plain >= PLAIN_PERIOD_S:
            self._last_plain = time.monotonic()
            self._say(f"{kimg:.1f}/{self._total_kimg:.0f} kimg  {told}")

    def _move(self, kimg: float, told: str) -> None:
        if self._bar is None:
            columns = (
                TextColumn("{task.percentage:>3.0f}%"),
                BarColumn(None),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Progress(*columns, console=self._rich, transient=True)
            self._bar.add_task("", total=self._total_kimg)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=kimg, description=told)


def _told(values: Mapping[str, Any]) -> str:
    """How fast, how long still, and both losses."""
    pace = (
        f"{values['images_per_s']:.0f} images/s  ETA {clock_time(values['eta_s'])}  data wait {values['data_wait']:.0%}"
    )
    losses = (("D", "d/loss/adversarial"), ("G", "g/loss/adversarial"))
    return "  ".join([pace, *(f"{name} {values[key]:.3f}" for name, key in losses if key in values)])


def score_line(values: Mapping[str, Any]) -> str:
    """The metrics in one line; counts and the protocol are left out."""
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, float))


def clock_time(seconds: float) -> str:
    """H:MM:SS, or M:SS below an hour."""
    minutes, s = divmod(int(seconds + 0.5), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
