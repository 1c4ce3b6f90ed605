"""Console output: a progress bar on terminals and in notebooks, else a line every ten seconds."""

import math
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from paragan.core.event import Event
from paragan.core.printable import to_printable
from paragan.report.record_values import finite_or_nan, to_mapping

PLAIN_PERIOD_S = 10.0


class Writer:
    """Writer that prints steps as a bar or a periodic line, and all other events at once."""

    def __init__(self, options: object, folder: Path, step: int = 0) -> None:
        self._folder = folder
        self._total_kimg = 0.0
        self._noun = "images"
        self._rich = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        has_widgets = self._rich.is_jupyter and find_spec("ipywidgets") is not None
        self._has_bar = self._rich.is_terminal or has_widgets
        self._bar: Progress | None = None
        self._texts = {"generation": "", "step": ""}  # next to the bar
        self._last_printed = dict.fromkeys(self._texts, time.monotonic())
        self._best = (math.inf, "")  # score and cell

    def write(self, event: Event) -> None:
        """Print an event."""
        values = event.values
        kimg = f"{event.images / 1000:.1f} kimg"
        match event.kind:
            case "start":
                self._total_kimg = values["total_kimg"]
                self._noun = "samples" if "tensors" in values.get("data", {}) else "images"
            case "step":
                self._show_step(event)
            case "generation":
                self._show_generation(event)
            case "samples" if event.step == 0:
                where = self._folder / "samples"
                self._print(f"samples   {where}, first after {clock_time(event.seconds)}")
            case "score":
                self._print(f"{kimg}  {score_line(values)}")
            case "advice":
                self._print(f"{kimg}  advice: {values['means']} {values['try']}")
                if command := values.get("command"):
                    self._print(f"{' ' * len(kimg)}  {command}")
            case "event":
                self._total_kimg = values.get("total_kimg", self._total_kimg)
                if not (text := values["text"]).startswith("warning:"):  # `MultiWriter` prints those
                    self._print(f"{kimg}  {text}")
            case "end":
                self.close()

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        self._rich.print(to_printable(text), markup=False)

    def _show_step(self, event: Event) -> None:
        kimg = event.images / 1000
        text = step_text(event.values, self._noun)
        self._show("step", text, kimg, f"{kimg:.1f}/{self._total_kimg:g} kimg  {text}")

    def _show_generation(self, event: Event) -> None:
        """Show a generation, or print the ensemble, an extra event of the last generation."""
        text, self._best = generation_line(event.values, self._best)
        if "ensemble" in event.values:
            self._print(ensemble_line(event.values))
        else:
            self._show("generation", text, event.images / 1000, text)

    def _show(self, kind: str, text: str, kimg: float, line: str) -> None:
        """Show a text next to the bar; without one, print a line if the last is old enough."""
        self._texts[kind] = text
        now = time.monotonic()
        if self._has_bar:
            self._update_bar(kimg)
        elif now - self._last_printed[kind] >= PLAIN_PERIOD_S:
            self._last_printed[kind] = now
            self._print(line)

    def _update_bar(self, kimg: float) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.percentage:>3.0f}%"),
                BarColumn(None),
                TextColumn("{task.description}", markup=False),
                console=self._rich,
                transient=True,
            )
            self._bar.add_task("", total=self._total_kimg)
            self._bar.start()
        description = "  ".join(text for text in self._texts.values() if text)
        self._bar.update(self._bar.task_ids[0], completed=kimg, total=self._total_kimg, description=description)


def step_text(values: Mapping[str, Any], noun: str = "images") -> str:
    """Return throughput and remaining time, once they are known, data wait and both losses. noun: of samples."""
    parts = []
    if values["images_per_s"]:
        parts += [f"{values['images_per_s']:.0f} {noun}/s", f"ETA {clock_time(values['eta_s'])}"]
    parts.append(f"data wait {values['data_wait']:.0%}")
    losses = (("D", "d/loss/adversarial"), ("G", "g/loss/adversarial"))
    parts += [f"{name} loss {values[key]:.3f}" for name, key in losses if key in values]
    return "  ".join(parts)


def generation_line(values: Mapping[str, Any], before: tuple[float, str]) -> tuple[str, tuple[float, str]]:
    """Return a line on a generation's best cell, and the best score so far with its cell.

    before: best score and cell until now.
    """
    number = values["generation"]
    scores = {cell: finite_or_nan(to_mapping(line).get("score")) for cell, line in values["cells"].items()}
    finite = [(score, cell) for cell, score in scores.items() if math.isfinite(score)]
    if not finite:
        return f"generation {number}", before
    score, cell = min(finite, key=lambda pair: pair[0])
    best = min(before, (score, f"cell {cell} in generation {number}"), key=lambda pair: pair[0])
    earlier = f", best so far {best[1]}: fd {best[0]:.4g}" if best[0] < score else ""
    return f"generation {number}  best cell {cell}: fd {score:.4g}{earlier}", best


def ensemble_line(values: Mapping[str, Any]) -> str:
    """Return a line on the ensemble: its generators by cell, and its score."""
    counts = values["ensemble"]["counts"]
    distance = values["ensemble"]["distance"]
    cells = ", ".join(f"{count} of cell {cell}" for cell, count in counts.items())
    ensemble = f"ensemble of {sum(counts.values())}: fd {distance:.4g} ({cells})"
    return f"generation {values['generation']}  {ensemble}"


def score_line(values: Mapping[str, object]) -> str:
    """Return the first two metrics and coverage in one line, with those of real images; the report has all."""
    texts = _metric_texts(values)
    shown = [*list(texts)[:2], "coverage"]  # without it, a G that has lost modes may have the better line
    line = "  ".join(text for name, text in texts.items() if name in shown)
    return line or "no metric has a value, usually for too few images"


def whole_score_line(values: Mapping[str, object]) -> str:
    """Return all metrics in one line, with those of real images and the extractor's accuracy."""
    accuracy = to_mapping(values.get("protocol")).get("extractor_accuracy")
    known = [f"extractor accuracy {accuracy:.4g}"] if isinstance(accuracy, float) else []
    return "  ".join([*_metric_texts(values).values(), *known])


def _metric_texts(values: Mapping[str, object]) -> dict[str, str]:
    real = to_mapping(values.get("real"))
    intervals = to_mapping(values.get("intervals"))
    metrics = {name: value for name, value in values.items() if isinstance(value, float)}
    return {name: _format_value(name, value, real.get(name), intervals.get(name)) for name, value in metrics.items()}


def _format_value(name: str, value: float, real: object, interval: object) -> str:
    """Format `fd[mnist] 4.21 ± 0.12 (real 0.9)`; the interval and the value of real images may be missing.

    The classifier that is trained on the run's images, the usual extractor, is not named.
    """
    text = f"{name.removesuffix('[judge]')} {value:.4g}"
    match interval:
        case [float(low), float(high)]:
            text += f" ± {(high - low) / 2:.2g}"
    return text + (f" (real {real:.4g})" if isinstance(real, float) else "")


def clock_time(seconds: float) -> str:
    """Format seconds as H:MM:SS, or M:SS below an hour."""
    minutes, s = divmod(int(seconds + 0.5), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
