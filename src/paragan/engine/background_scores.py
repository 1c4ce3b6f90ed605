"""Scores of checkpoints by a separate process, so that training never waits for them."""

import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragan.checkpoint.best import Best
from paragan.checkpoint.manifest import MANIFEST, STATE, read_json
from paragan.checkpoint.reader import read_counts
from paragan.checkpoint.writer import link_checkpoint
from paragan.core.errors import CheckpointError, describe_error
from paragan.core.event import Event
from paragan.core.files import create_subfolder, read_json_lines, remove_tree
from paragan.evaluation.scoring_process import ScoringProcess

FOLDER = "background"
_PERIOD_S = 1.0  # between two looks while the run trains
_STEP = re.compile(r"step-(\d{1,15})", re.ASCII)


@dataclass(kw_only=True)
class _Task:
    """A linked checkpoint to score."""

    path: Path
    step: int
    images: int
    began: float = 0.0  # monotonic time of the request
    is_suspended: bool = False  # as reported


@dataclass(kw_only=True)
class BackgroundScores:
    """Scores of a run by one process, one after another; for rank 0.

    run: its folder. process: replies to a checkpoint with a score. timeout_s: limit of one score. At
    most one task is computed and one waits; a newer one replaces the waiting one.
    """

    run: Path
    process: ScoringProcess
    timeout_s: float = 3600.0
    _tasks: list[_Task] = field(default_factory=list, init=False)
    _next_look: float = field(default=0.0, init=False)
    _done: set[int] = field(default_factory=set, init=False)  # recorded before a kill
    _warned: set[str] = field(default_factory=set, init=False)

    @property
    def is_busy(self) -> bool:
        """Whether a score is computed or waits."""
        return bool(self._tasks)

    def has(self, step: int) -> bool:
        """Return whether the score of a step is requested, or was recorded before a kill."""
        return step in self._done or any(task.step == step for task in self._tasks)

    def reserve(self, step: int) -> None:
        """Note that a step is to be scored, before its checkpoint is written; survives a kill."""
        with suppress(OSError):
            create_subfolder(create_subfolder(self.run, FOLDER), f"step-{step:09d}")

    def request(self, checkpoint: Path, step: int, images: int) -> Iterator[Event]:
        """Score a checkpoint, once the process is free."""
        task = _Task(path=self.run / FOLDER / checkpoint.name, step=step, images=images)
        try:
            # links: the run may prune the checkpoint before the process has read it
            link_checkpoint(checkpoint, task.path)
        except OSError as error:
            yield from self._give_up(task, describe_error(error))
            return
        self._tasks.append(task)
        for skipped in self._tasks[1:-1]:
            self._remove(skipped)
            yield _message(skipped, f"the score of step {skipped.step} is skipped: a newer checkpoint waits")
        if len(self._tasks) == 1:
            yield from self._start()

    def resume(self, step: int) -> Iterator[Event]:
        """Request the scores that a former session left, up to the step of the resume."""
        # A folder outlives a kill: its score is either in the record, or was never computed.
        recorded = self._recorded_steps()
        for path in sorted((self.run / FOLDER).glob("step-*")):
            match = _STEP.fullmatch(path.name)
            if match is None:
                continue
            number = int(match[1])
            if number in recorded:
                self._done.add(number)
            is_due = number <= step and number not in recorded and not path.is_symlink()
            task = self._leftover(path) if is_due else None
            if task is None:
                remove_tree(path)
            else:
                self._tasks.append(task)
        yield from self._start()

    def events(self, is_end: bool = False) -> Iterator[Event]:
        """Yield the newest score and what went wrong; looks at the process once a second.

        is_end: look now, and do not wait for a suspended process.
        """
        now = time.monotonic()
        if not self._tasks or (now < self._next_look and not is_end):
            return
        self._next_look = now + _PERIOD_S
        task = self._tasks[0]
        reply = self.process.receive()
        if reply is None:
            reply = yield from self._watch(task, is_end)
        if reply is None:
            return
        if "error" in reply:
            yield from self._give_up(task, str(reply["error"]))
        else:
            yield from self._finish(task, reply)
        self._remove(task)
        yield from self._start()

    def _start(self) -> Iterator[Event]:
        """Send the next task to the process; start one if none runs."""
        while self._tasks:
            task = self._tasks[0]
            task.began = time.monotonic()
            self._next_look = task.began + _PERIOD_S
            try:
                self.process.send({"checkpoint": str(task.path)})
                return
            except (OSError, CheckpointError) as error:
                yield from self._give_up(task, describe_error(error))
                self._remove(task)

    def _watch(self, task: _Task, is_end: bool) -> Generator[Event, None, dict[str, Any] | None]:
        """Yield a warning about a suspended process; return why the task ends, or None."""
        if self.process.is_suspended:
            if is_end:
                return self.process.end("its process is suspended (SIGSTOP), and the run has ended")
            if not task.is_suspended:
                task.is_suspended = True
                text = f"the process that computes the score of step {task.step} is suspended (SIGSTOP)"
                yield _message(task, f"warning: {text}; training continues")
        if time.monotonic() - task.began > self.timeout_s:
            return self.process.end(f"no answer within {self.timeout_s:g} s")
        return None

    def _finish(self, task: _Task, reply: Mapping[str, Any]) -> Iterator[Event]:
        score = reply["score"]
        for text in map(str, reply.get("warnings", ())):
            if text not in self._warned:
                self._warned.add(text)
                yield _message(task, text)
        values = {**score.values, "evaluation_mode": "background"}
        yield Event(kind="score", step=task.step, images=task.images, values=values, repeat_s=0.0)
        best = Best(self.run / "best")
        if task.step == 0 or not best.is_beaten_by(score):
            return
        try:
            best.update(task.path, task.step, task.images, score)
        except CheckpointError as error:
            yield _message(task, f"warning: {error}")

    def _give_up(self, task: _Task, reason: str) -> Iterator[Event]:
        yield _message(task, f"warning: the score of step {task.step} failed: {reason}; training continues")

    def _remove(self, task: _Task) -> None:
        self._tasks = [other for other in self._tasks if other is not task]
        remove_tree(task.path)

    def _leftover(self, path: Path) -> _Task | None:
        """Return the task of a folder from a former session; None if its checkpoint is missing."""
        checkpoint = self.run / "checkpoints" / path.name
        try:
            if not (path / MANIFEST).is_file():  # the kill came before the links
                remove_tree(path)
                link_checkpoint(checkpoint, path)
            clock = read_counts(read_json(path / STATE)["values"]["clock"], "step", "images")
        except (OSError, CheckpointError, KeyError, TypeError, ValueError):
            return None
        return _Task(path=path, step=clock["step"], images=clock["images"])

    def _recorded_steps(self) -> set[object]:
        with suppress(FileNotFoundError):
            lines = read_json_lines(self.run / "metrics.jsonl")
            return {line.get("step") for line in lines if line.get("kind") == "score"}
        return set()


def _message(task: _Task, text: str) -> Event:
    return Event(kind="event", step=task.step, images=task.images, values={"text": text})
