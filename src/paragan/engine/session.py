"""A trainer in its folder: what it yields goes to the record, the pictures and the console."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paragan.core.types import Report
from paragan.engine.folder import RunFolder, write_json
from paragan.engine.trainer import Event, Samples, Saved, Scored, Trainer
from paragan.writers.console import Console, Pace, clock_time
from paragan.writers.images import save_grid
from paragan.writers.jsonl import Writer


@dataclass
class Session:
    """Runs a trainer to its end or to a stop. Numbers of a step reach the host every `every.log_steps` steps only."""

    trainer: Trainer
    folder: RunFolder
    console: Console
    began: float = field(default_factory=time.monotonic)
    last_score: Mapping[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Train. The record starts where the trainer stands, so call after `resume`."""
        self._images0, self._wait0 = self.trainer.clock.images, self.trainer.batches.wait_s
        self._record = Writer(self.folder.record, self.trainer.clock.step)
        try:
            for event in self.trainer.run():
                self._take(event)
        finally:
            self.console.close()
            self._record.close()

    def _take(self, event: Event) -> None:
        match event:
            case Report():
                if event.step % self.trainer.every.log_steps == 0:
                    self._step(event)
            case Samples():
                path = self.folder.samples / f"step-{event.step:07d}.png"
                save_grid(event.x_BCHW, path, event.columns)
                self._note("samples", event, {"path": str(path.relative_to(self.folder.path))})
                if event.step == 0:
                    self.console.say(f"pictures  {path.parent}, the first after {clock_time(self.seconds())}")
            case Scored():
                self.last_score = event.score.metrics
                score = {**event.score.metrics, "num_images": event.score.num_images, "protocol": event.score.protocol}
                self._note("score", event, score)
                write_json(self.folder.path / "score.json", {"step": event.step, "images": event.images, **score})
                self.console.say(f"{event.images / 1000:.1f} kimg  {score_line(event.score.metrics)}")
            case Saved():
                self._note("checkpoint", event, {"path": event.path})

    def _step(self, report: Report) -> None:
        values = report.read()
        pace = self._pace(report.images)
        self._note("step", report, {**values, "images_per_s": round(pace.rate, 1), "data_wait": round(pace.waiting, 4)})
        told = "  ".join(
            f"{name} {values[key]:.3f}"
            for name, key in (("D", "d/loss/adversarial"), ("G", "g/loss/adversarial"))
            if key in values
        )
        self.console.progress(pace, told)

    def _pace(self, images: int) -> Pace:
        seconds = max(self.seconds(), 1e-9)
        waiting = (self.trainer.batches.wait_s - self._wait0) / seconds
        return Pace(images, self.trainer.images, (images - self._images0) / seconds, waiting)

    def _note(self, kind: str, event: Event, values: Mapping[str, Any]) -> None:
        self._record.write(
            {
                "kind": kind,
                "step": event.step,
                "kimg": event.images / 1000,
                "seconds": round(self.seconds(), 2),
                **values,
            }
        )

    def seconds(self) -> float:
        """Since this session began."""
        return time.monotonic() - self.began


def score_line(metrics: Mapping[str, float]) -> str:
    """The metrics in one line."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
