"""Session of a run, which passes the trainer's events to the writers, with speed, remaining time and advice."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paragan.core.dist import ALONE, World
from paragan.core.event import Event, Writer
from paragan.core.files import read_json_lines
from paragan.engine.advice import Advice, advise
from paragan.engine.options import EveryOptions
from paragan.engine.remedies import Settings
from paragan.engine.signs import History, Moment
from paragan.engine.training_loop import TrainingLoop

_LOG_POINTS = 8  # that the advice reads


@dataclass(kw_only=True)
class Session:
    """Record of a run while a process trains it: `write` every event of the trainer, then `end`.

    folder: the run folder; its record is read for the advice after a resume. writer: of this rank; rank 0 alone
    writes the record and gives advice. run_info: more values for the `start` event (recipe, changed settings,
    commands). world: all ranks; every rank has a session. messages: texts that are written as events after the start.
    keep_files: called after every checkpoint; checks that the files of the run are still there. settings: of the run,
    by dotted key, for the advice. command: returns how to start the run anew with changed ones.
    """

    trainer: TrainingLoop
    folder: Path
    writer: Writer
    run_info: Mapping[str, Any] = field(default_factory=dict)
    world: World = ALONE
    messages: Sequence[str] = ()
    last_score: Mapping[str, Any] = field(default_factory=dict)  # values of the newest score event
    keep_files: Callable[[], None] = lambda: None
    settings: Settings = field(default_factory=dict)
    command: Callable[[Settings], str] = lambda changes: ""
    advised_command: str = ""  # of the newest advice of this session that has one
    is_complete: bool = False  # nothing is left to train, score or record in the folder
    _history: list[Moment] = field(default_factory=list)
    _log_points: deque[Moment] = field(default_factory=lambda: deque(maxlen=_LOG_POINTS))
    _advice_given: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.timer = ProgressTimer(total=self.trainer.images, every=self.trainer.every)

    def write(self, event: Event) -> None:
        """Pass an event of the trainer to the writers, with speed and the advice that follows."""
        match event.kind:
            case "start":
                self._start(event)
            case "step" if event.values:
                self.timer.record(event)  # so that the first has a speed, too
                self.timer.total = self.trainer.images  # more after a rollback
                images_per_s = round(self.timer.images_per_s(), 1)
                speed = {"images_per_s": images_per_s, "eta_s": round(self.timer.eta_s(event.images), 1)}
                self._write(replace(event, values={**event.values, **speed}))
                self._log_points.append(event.values)
                self._advise(event, self._log_points)
            case "step":
                self.timer.record(event)  # between two log points
            case _:
                self._write(event)
        if event.kind == "score":
            self.last_score = event.values
        if event.kind in ("score", "telemetry"):
            self._history.append({"kimg": event.images / 1000, **event.values})
            self._advise(event, self._history)
        if event.kind != "step":
            self.timer.record(event)
        if event.kind == "checkpoint":
            self.keep_files()

    def end(self, code: int, reason: str) -> None:
        """Write the `end` event and close the writers."""
        self._write(self.trainer.event("end", {"code": code, "reason": reason}))
        self.writer.close()

    def _start(self, event: Event) -> None:
        """Write the first event, the messages, and advice that the record does not have yet."""
        before = read_history(self.folder / "metrics.jsonl", event.step) if self.world.is_main else []
        self._history = [line for line in before if line["kind"] in ("telemetry", "score")]
        self._advice_given = [line for line in before if line["kind"] == "advice"]
        data = dict(event.values["data"])
        if "data" in self.run_info:
            data["name"] = self.run_info["data"]
        self._write(replace(event, values={**self.run_info, **event.values, "data": data}))
        warnings = (f"warning: {text}" for text in self.trainer.batches.source.notices)
        for text in (*self.messages, *warnings):
            self._write(replace(event, kind="event", values={"text": text}))
        self._advise(event, self._history)

    def _advise(self, event: Event, history: History) -> None:
        """Write each new advice after an event; a rule gives advice once per run."""
        if not self.world.is_main:
            return
        source = self.trainer.batches.source
        num_images = len(source) if source.is_image else 0
        for advice in advise(history, num_images, self.settings, source.is_image and not source.has_pairs):
            if self._is_new(advice):
                values = advice | ({"command": self.command(advice["changes"])} if advice["changes"] else {})
                self._advice_given.append(values)
                self.advised_command = values.get("command", self.advised_command)
                self._write(replace(event, kind="advice", values=values, x_BCHW=None))

    def _is_new(self, advice: Advice) -> bool:
        """Return whether neither the rule nor its changes were given before."""
        names = [earlier.get("name") for earlier in self._advice_given]
        changes = [earlier["changes"] for earlier in self._advice_given if earlier.get("changes")]
        return advice["name"] not in names and advice["changes"] not in changes

    def _write(self, event: Event) -> None:
        self.writer.write(replace(event, seconds=self.timer.seconds()))


def read_history(record: Path, step: int) -> list[Moment]:
    """Return telemetry, scores and advice of the record up to `step`, oldest first."""
    kinds = ("telemetry", "score", "advice")
    with suppress(FileNotFoundError):
        return [line for line in read_json_lines(record) if line.get("kind") in kinds and _step_of(line) <= step]
    return []


def _step_of(line: Moment) -> float:
    step = line.get("step")
    return step if isinstance(step, int | float) else float("inf")


_TIMED = ("step", "generation", "samples", "telemetry", "score", "checkpoint")
_DECAY = 0.98  # of the exponential average over steps: about the last 50 count


@dataclass(kw_only=True)
class ProgressTimer:
    """Estimate of images per second and the remaining time from the time between events.

    total: images of the whole run. every: periods of samples, scores and checkpoints.
    """

    total: int
    every: EveryOptions
    began: float = field(default_factory=time.monotonic)
    _last: float = 0.0
    _step_s: float = 0.0
    _step_images: float = 0.0
    _images: int = 0  # at the previous step: other events of a step come before its own; fewer after a rollback
    _steps: int = 0
    _costs: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._last = self.began

    def record(self, event: Event) -> None:
        """Attribute the time since the previous event to this kind, unless that takes no time."""
        if event.kind not in _TIMED:
            self._images = event.images if event.kind == "start" else min(self._images, event.images)
            return
        now = time.monotonic()
        spent_s = now - self._last
        self._last = now
        if event.kind == "step":
            self._steps += 1
            decay = 0.0 if self._steps == 2 else _DECAY  # the second step replaces the warm-up
            self._step_s = decay * self._step_s + (1 - _DECAY) * spent_s
            self._step_images = decay * self._step_images + (1 - _DECAY) * (event.images - self._images)
            self._images = event.images
        else:
            self._costs[event.kind] = spent_s if event.repeat_s is None else event.repeat_s

    def seconds(self) -> float:
        """Return the seconds since this session began."""
        return time.monotonic() - self.began

    def images_per_s(self) -> float:
        """Return the images per second of the steps only."""
        return self._step_images / self._step_s if self._step_s else 0.0

    def eta_s(self, images: int) -> float:
        """Return the seconds from `images` on for the remaining steps and the work due among them.

        A kind of work without an event yet counts as 0 s.
        """
        remaining = max(0, self.total - images)
        rate = self.images_per_s()
        other_s = sum(times * self._costs.get(kind, 0.0) for kind, times in self._count_due(images).items())
        return (remaining / rate if rate else 0.0) + other_s

    def _count_due(self, images: int) -> dict[str, int]:
        periods = {
            "samples": self.every.sample_kimg,
            "telemetry": self.every.telemetry_kimg,
            "score": self.every.score_kimg,
            "checkpoint": self.every.save_kimg,
        }
        due = {kind: _count_periods(kimg * 1000, images, self.total) for kind, kimg in periods.items()}
        return due | {"score": max(1, due["score"])}  # the end of a run is always scored


def _count_periods(period: float, before: int, total: int) -> int:
    return max(0, int(total / period) - int(before / period)) if period else 0
