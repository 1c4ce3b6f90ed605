"""The record of truth: metrics.jsonl, one JSON object per line, appended; and score.json, the newest score."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paragan.core.event import Event
from paragan.core.files import atomic_write, open_regular_file, open_to_append, write_text

_MOST_WAITING = 1 << 24  # bytes


@dataclass(frozen=True)
class Options:
    """There are none."""


class Lines:
    """A file of one JSON object per line, appended.

    A full disk does not end the record: what could not be written follows as soon as there is room.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_to_append(path)
        self._waiting = b""

    def _put(self, line: Mapping[str, Any]) -> None:
        self._waiting += (json.dumps(line) + "\n").encode()
        self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[self._file.write(self._waiting) :]
        except OSError:
            if len(self._waiting) > _MOST_WAITING:
                raise

    def close(self) -> None:
        """An `OSError` where lines are lost."""
        self._flush()
        self._file.close()
        if self._waiting:
            raise OSError(f"{len(self._waiting)} bytes of the record found no room")


class Writer(Lines):
    """Lines after `step` belong to a future that was lost; a resumed run drops them before it appends."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._score = folder / "score.json"
        path = folder / "metrics.jsonl"
        if path.exists() and step:
            _keep_until(path, step)
        else:
            path.unlink(missing_ok=True)  # of an attempt that came to nothing
        super().__init__(path)

    def write(self, note: Event) -> None:
        self._put(note.line)
        if note.kind == "score":
            score = {"step": note.step, "images": note.images, **note.values}
            with suppress(OSError):  # the record has it
                write_text(self._score, json.dumps(score, indent=1) + "\n")


class RankWriter(Lines):
    """The events of one rank, of all attempts: when it began, how fast it goes, what it sent, why it ended.

    `always` goes into every line; `sent` is read at log points. Losses and scores are the same on all ranks and stand
    in the record of the run.
    """

    def __init__(self, path: Path, always: Mapping[str, Any], sent: Mapping[str, int]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path)
        self._always, self._sent = always, sent

    def write(self, note: Event) -> None:
        match note.kind:
            case "start":
                values = {"resumed": note.values["resumed"]}
            case "step":
                kept = {key: note.values[key] for key in ("images_per_s", "data_wait") if key in note.values}
                values = {**kept, "sent_bytes": dict(self._sent)}
            case "event" | "end":
                values = dict(note.values)
            case _:
                return
        head = replace(note, values={}).line
        self._put({**head, **self._always, "time": round(time.time(), 3), **values})


def _keep_until(path: Path, step: int) -> None:
    with open_regular_file(path) as before, atomic_write(path) as file:
        for line in before:
            if _step(line) <= step:
                file.write(line.rstrip(b"\r\n") + b"\n")


def _step(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return float("inf")  # a line cut short by a kill
