"""Progress for a person: a bar on a terminal, one plain line every ten seconds anywhere else."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from paragan.core.event import Event
from paragan.core.printable import to_printable
from paragan.report.record_values import finite_or_nan, to_mapping

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
        self._told_at = dict.fromkeys(("step", "generation"), time.monotonic())  # off a terminal
        self._told, self._standing = "", ""  # of the newest step and generation
        self._best = (math.inf, "")  # score so far, and whose

    def write(self, note: Event) -> None:
        values, kimg = note.values, f"{note.images / 1000:.1f} kimg"
        match note.kind:
            case "start":
                self._total_kimg = values["total_kimg"]
            case "step":
                self._progress(note)
            case "generation":
                self._generation(note)
            case "samples" if note.step == 0:
                where = self._folder / "samples"
                self._say(f"pictures  {where}, the first after {clock_time(note.seconds)}")
            case "score":
                self._say(f"{kimg}  {score_line(values)}")
            case "advice":
                self._say(f"{kimg}  advice: {values['means']} {values['try']}")
            case "event":
                text = values["text"]
                self._say(text if text.startswith("warning:") else f"{kimg}  {text}")
            case "end":
                self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, text: str) -> None:
        self._rich.print(to_printable(text), markup=False)

    def _progress(self, note: Event) -> None:
        kimg, self._told = note.images / 1000, _told(note.values)
        if self._rich.is_terminal:
            self._move(kimg)
        elif self._is_due("step"):
            self._say(f"{kimg:.1f}/{self._total_kimg:g} kimg  {self._told}")

    def _generation(self, note: Event) -> None:
        """An ensemble comes once, with the newest generation told again."""
        self._standing, self._best = generation_line(note.values, self._best)
        if "ensemble" in note.values:
            self._say(ensemble_line(note.values))
        elif self._rich.is_terminal:
            self._move(note.images / 1000)
        elif self._is_due("generation"):
            self._say(self._standing)

    def _is_due(self, what: str) -> bool:
        """Whether its last line is old enough."""
        now = time.monotonic()
        due = now - self._told_at[what] >= PLAIN_PERIOD_S
        if due:
            self._told_at[what] = now
        return due

    def _move(self, kimg: float) -> None:
        if self._bar is None:
            columns = (
                TextColumn("{task.percentage:>3.0f}%"),
                BarColumn(None),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Progress(*columns, console=self._rich, transient=True)
            self._bar.add_task("", total=self._total_kimg)
            self._bar.start()
        told = "  ".join(text for text in (self._standing, self._told) if text)
        self._bar.update(self._bar.task_ids[0], completed=kimg, description=told)


def _told(values: Mapping[str, Any]) -> str:
    """How fast, how long still, and both losses."""
    pace = (
        f"{values['images_per_s']:.0f} images/s  ETA {clock_time(values['eta_s'])}  data wait {values['data_wait']:.0%}"
    )
    losses = (("D", "d/loss/adversarial"), ("G", "g/loss/adversarial"))
    return "  ".join([pace, *(f"{name} {values[key]:.3f}" for name, key in losses if key in values)])


def generation_line(values: Mapping[str, Any], before: tuple[float, str]) -> tuple[str, tuple[float, str]]:
    """Which cell's mixture is best, and the best so far: score, and whose. before: the best so far until now."""
    number = values["generation"]
    scores = {cell: finite_or_nan(to_mapping(told).get("score")) for cell, told in values["cells"].items()}
    told = [(score, cell) for cell, score in scores.items() if math.isfinite(score)]
    if not told:
        return f"generation {number}", before
    score, cell = min(told, key=lambda pair: pair[0])
    best = min(before, (score, f"cell {cell} in generation {number}"), key=lambda pair: pair[0])
    earlier = f", so far {best[1]}: fd {best[0]:.4g}" if best[0] < score else ""
    return f"generation {number}  best cell {cell}: fd {score:.4g}{earlier}", best


def ensemble_line(values: Mapping[str, Any]) -> str:
    """How many generators of which cells are best together, and how good they are."""
    counts, distance = values["ensemble"]["counts"], values["ensemble"]["distance"]
    cells = ", ".join(f"{count} of cell {cell}" for cell, count in counts.items())
    return f"generation {values['generation']}  ensemble of {sum(counts.values())}: fd {distance:.4g} ({cells})"


def score_line(values: Mapping[str, Any]) -> str:
    """The metrics in one line, each with the value of real images, and the accuracy of the extractor."""
    real, accuracy = to_mapping(values.get("real")), to_mapping(values.get("protocol")).get("extractor_accuracy")
    told = [_with_real(name, value, real.get(name)) for name, value in values.items() if isinstance(value, float)]
    return "  ".join([*told, *([f"extractor accuracy {accuracy:.4g}"] if isinstance(accuracy, float) else [])])


def _with_real(name: str, value: float, real: object) -> str:
    return f"{name} {value:.4g}" + (f" (real {real:.4g})" if isinstance(real, float) else "")


def clock_time(seconds: float) -> str:
    """H:MM:SS, or M:SS below an hour."""
    minutes, s = divmod(int(seconds + 0.5), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
