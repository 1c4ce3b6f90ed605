"""A session of a run: passes the trainer's events to the writers and gives advice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from paragan.core.dist import ALONE, World
from paragan.core.event import Event, Writer
from paragan.core.files import open_regular_file
from paragan.core.types import Report
from paragan.engine.advice import Advice, advise
from paragan.engine.delays import DelayLog, mean_delays
from paragan.engine.divergence import SkipMonitor
from paragan.engine.pace import ProgressTimer
from paragan.engine.trainer import Trainer
from paragan.game.player import Player
from paragan.game.policy import learning_rates


@dataclass
class Session:
    """Runs a trainer to its end or to a stop, and passes its events to the writers.

    Numbers of a step reach the host every `every.log_steps` steps only.
    folder: the run folder; its record is read for the advice after a resume.
    writer: of this rank; rank 0 alone writes the record and gives advice.
    run_info: more values for the `start` event (recipe, changed settings, commands).
    world: all ranks; every rank runs a session.
    messages: texts that are written as events after the start.
    """

    trainer: Trainer
    folder: Path
    writer: Writer
    run_info: Mapping[str, Any] = field(default_factory=dict)
    world: World = ALONE
    messages: Sequence[str] = ()
    last_score: Mapping[str, Any] = field(default_factory=dict)  # values of the newest score event
    is_complete: bool = False  # the folder has the finished run: nothing is left to train, score or record
    _scalars: dict[str, Any] = field(default_factory=dict)  # newest value of each: lazy penalties are due now and then

    def __post_init__(self) -> None:
        self.timer = ProgressTimer(self.trainer.images, self.trainer.every)

    def run(self) -> None:
        """Train to the end or to a stop. Call `Trainer.resume` first."""
        for _ in self.stages():
            pass

    def stages(self) -> Iterator[None]:
        """`run` as a generator that yields after each stage of the trainer (`Trainer.stages`)."""
        self._wait0 = self.trainer.batches.wait_s
        self._skips = SkipMonitor(self.trainer.players)
        self._delays = DelayLog(self.trainer)
        before = read_history(self.folder / "metrics.jsonl", self.trainer.clock.step) if self.world.is_main else []
        self._history = [line for line in before if line["kind"] in ("telemetry", "score")]
        self._advice_given = {str(line.get("name")) for line in before if line["kind"] == "advice"}
        if self.is_complete:
            return
        self._write("start", {**self.run_info, **self._start()})
        for text in (*self.messages, *(f"warning: {text}" for text in self.trainer.batches.source.notices)):
            self._write("event", {"text": text})
        self._advise()
        for stage in self.trainer.stages():
            self._handle(stage)
            yield
        self._log_delays()
        self._log_skips(at_the_end=True)

    def score(self) -> dict[str, float]:
        """Score the generator now and record it; metrics by name, empty where scoring is off. Collective."""
        if self.trainer.scored_at != self.trainer.clock.step:
            self._handle(self.trainer.scores())
        return self.trainer.roles.gather_merged({k: v for k, v in self.last_score.items() if isinstance(v, float)})

    def save(self) -> None:
        """Write a checkpoint now. Collective."""
        if self.trainer.saved_at != self.trainer.clock.step:
            self._handle([self.trainer.save()])

    def _handle(self, events: Iterable[Report | Event]) -> None:
        for event in events:
            if isinstance(event, Report):
                self._take_report(event)
                self.timer.record(event.kind)
            else:
                self._take_event(event)
                self.timer.record(event.kind, event.repeat_s)

    def end(self, code: int, reason: str) -> None:
        """Write the `end` event and close the writers."""
        self._write("end", {"code": code, "reason": reason})
        self.writer.close()

    def seconds(self) -> float:
        """Seconds since this session began."""
        return self.timer.seconds()

    def _take_report(self, report: Report) -> None:
        self._scalars |= report.scalars
        if report.step % self.trainer.every.log_steps == 0:
            self._step(replace(report, scalars=self._scalars))

    def _take_event(self, event: Event) -> None:
        self.writer.write(replace(event, seconds=self.seconds()))
        if event.kind == "score":
            self.last_score = event.values
        if event.kind in ("score", "telemetry"):
            self._advise(event.values)

    def _step(self, report: Report) -> None:
        rates: dict[str, float] = {}
        for side, player in self.trainer.players.items():
            rates |= {f"{side}/{name}": rate for name, rate in learning_rates(player.optimizer).items()}
        if "d" in self.trainer.players:  # only ranks of D load images
            wait_s = self.trainer.batches.wait_s - self._wait0
            rates["data_wait"] = round(wait_s / max(self.timer.seconds(), 1e-9), 4)
        values = self.trainer.read(report, rates)
        clock, batch = self.trainer.clock, self.trainer.images_per_report
        speed = {
            "images_per_s": round(self.timer.images_per_s(batch), 1),
            "eta_s": round(self.timer.eta_s(clock, batch), 1),
        }
        delays = self._log_delays()
        self._write("step", {**values, **mean_delays(delays), **speed})
        self._log_skips()

    def _log_delays(self) -> dict[str, dict[str, Any]]:
        delays = self._delays.read()
        if delays:
            self._write("delays", delays)
        for text in self._delays.fallback_messages(delays):
            self._write("event", {"text": text})
        return delays

    def _log_skips(self, at_the_end: bool = False) -> None:
        for text in self._skips.messages():
            self._write("event", {"text": text})
        self._skips.raise_if_idle(self.trainer.clock.step, at_the_end)

    def _advise(self, values: Mapping[str, Any] | None = None) -> None:
        """Write each new advice; a rule gives advice once per run."""
        if not self.world.is_main:
            return
        if values is not None:
            self._history.append({"kimg": self.trainer.clock.images / 1000, **values})
        for advice in self._advice():
            if advice.name not in self._advice_given:
                self._advice_given.add(advice.name)
                self._write("advice", advice.line)

    def _advice(self) -> tuple[Advice, ...]:
        source, augmented = self.trainer.batches.source, self.trainer.gan.augment is not None
        return advise(self._history, len(source), augmented, source.has_pairs)

    def _start(self) -> dict[str, Any]:
        source, held_out = self.trainer.batches.source, self.trainer.fixed_samples.held_out
        data = {"shape": list(source.shape), "images": len(source), "class_names": list(source.class_names)}
        data |= {} if held_out is None else {"held_out_pairs": len(held_out)}
        data |= {} if self.trainer.prior.uses_labels else {"labels": "ignored by the generator"}
        return {
            "resumed": self.trainer.clock.step > 0,
            "total_kimg": self.trainer.images / 1000,
            "ranks": self.world.size,
            "players": describe_players(self.trainer),
            "data": data | ({"name": self.run_info["data"]} if "data" in self.run_info else {}),
            **self.trainer.start_values,
        }

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        self.writer.write(replace(self.trainer.event(kind, values), seconds=self.seconds()))


def describe_players(trainer: Trainer) -> dict[str, Any]:
    """Describe all players, on whatever ranks they train. Collective."""
    return trainer.roles.gather_merged({name: describe_player(player) for name, player in trainer.players.items()})


def describe_player(player: Player) -> dict[str, Any]:
    """Weights (number), precision, channels_last, device and strategy of a player."""
    weights = dict(player.net.named_parameters())
    first = next(iter(weights.values()))
    dtype = first.dtype if player.calling.dtype is None else player.calling.dtype
    layout = player.strategy.layout(player.net)
    return {
        "weights": sum(prod(layout[name].shape) for name in weights),
        "precision": {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, str(dtype)),
        "channels_last": player.calling.channels_last,
        "device": str(first.device),
        "strategy": type(player.strategy).__module__.rpartition(".")[2],
    }


def read_history(record: Path, step: int) -> list[Mapping[str, Any]]:
    """Telemetry, scores and advice of the record up to `step`, oldest first."""
    entries: list[Mapping[str, Any]] = []
    with suppress(FileNotFoundError), open_regular_file(record) as lines:
        for line in lines:
            try:
                entry = json.loads(line)
                if entry["kind"] in ("telemetry", "score", "advice") and entry["step"] <= step:
                    entries.append(entry)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # a line cut short by a kill
    return entries
