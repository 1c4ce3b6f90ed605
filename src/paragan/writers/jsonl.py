"""The record of truth: metrics.jsonl, one JSON object per line, appended; and score.json, the newest score."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paragan.core.files import write_text
from paragan.core.notes import Note

_MOST_WAITING = 1 << 24  # bytes


@dataclass(frozen=True)
class Options:
    """There are none."""


class Writer:
    """Lines after `step` belong to a future that was lost; a resumed run drops them before it appends.

    A full disk does not end the record: what could not be written follows as soon as there is room.
    """

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._score = folder / "score.json"
        path = folder / "metrics.jsonl"
        if path.exists() and step:
            _keep_until(path, step)
        else:
            path.unlink(missing_ok=True)  # of an attempt that came to nothing
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 held for the run
        self._waiting = b""

    def write(self, note: Note) -> None:
        self._waiting += (json.dumps(note.line) + "\n").encode()
        self._put()
        if note.kind == "score":
            score = {"step": note.step, "images": note.images, **note.values}
            with suppress(OSError):  # the record has it
                write_text(self._score, json.dumps(score, indent=1) + "\n")

    def _put(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[self._file.write(self._waiting) :]
        except OSError:
            if len(self._waiting) > _MOST_WAITING:
                raise

    def close(self) -> None:
        """An `OSError` where lines are lost."""
        self._put()
        self._file.close()
        if self._waiting:
            raise OSError(f"{len(self._waiting)} bytes of the record found no room")


def _keep_until(path: Path, step: int) -> None:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    write_text(path, "".join(f"{line}\n" for line in lines if _step(line) <= step))


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return float("inf")  # a line cut short by a kill
