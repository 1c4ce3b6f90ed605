"""Record of a run: metrics.jsonl (one JSON object per line), and score.json (latest score)."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from paragan.core.event import Event
from paragan.core.files import (
    append_again,
    atomic_write,
    create_subfolder,
    is_same_file,
    open_regular_file,
    open_to_append,
    write_text,
)
from paragan.core.printable import print_to_stderr

_MAX_PENDING_BYTES = 1 << 24
_OF_UNTRAINED = ("samples", "telemetry", "score")  # kinds that each session from step 0 repeats there


class Lines:
    """File of one JSON object per line, opened to append.

    A full disk does not stop the record: pending lines are written once the disk has space.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_to_append(path)  # unbuffered: `write` returns how many bytes the disk took
        self._pending = b""

    def _restore(self) -> None:
        """Write the file again if it was deleted or replaced, such as by a purge of old files."""
        if not is_same_file(self._file, self._path):
            deleted = self._file
            self._file = append_again(deleted, self._path)  # with the deleted content, which the open file holds
            deleted.close()

    def _warn_of_lost_lines(self) -> None:
        """Warn if the file is shorter than what was written: the next line hides that."""
        if (lost := self._file.tell() - os.fstat(self._file.fileno()).st_size) > 0:
            self._file.seek(0, os.SEEK_END)
            print_to_stderr(
                f"warning: {self._path}: {lost:,} bytes of the record are gone, because another program has shortened "
                "the file; the run goes on, and its report lacks those lines"
            )

    def _append(self, line: Mapping[str, Any]) -> None:
        self._warn_of_lost_lines()
        self._pending += (json.dumps(line) + "\n").encode()
        self._flush()

    def _flush(self) -> None:
        try:
            while self._pending:
                self._pending = self._pending[self._file.write(self._pending) :]
        except OSError:
            if len(self._pending) > _MAX_PENDING_BYTES:
                raise

    def close(self) -> None:
        """Write pending lines and close the file; raises `OSError` if a line cannot be written."""
        self._flush()
        self._file.close()
        if self._pending:
            problem = f"{len(self._pending)} bytes of the record could not be written"
            raise OSError(f"{problem}: the disk is full; free space and run the same command again")


class Writer(Lines):
    """Writer of metrics.jsonl and score.json.

    On resume, lines after `step` are dropped, because they will be repeated; without a checkpoint (-1) those are all.
    options: of every writer; this has none.
    """

    def __init__(self, options: object, folder: Path, step: int = -1) -> None:
        self._score = folder / "score.json"
        path = folder / "metrics.jsonl"
        if path.exists():
            _drop_repeated(path, step)
        super().__init__(path)

    def write(self, event: Event) -> None:
        """Append an event; a score also replaces score.json."""
        if event.kind in ("checkpoint", "end"):  # not for each line, as it reads from the file system
            self._restore()
        self._append(event.line)
        if event.kind == "score":
            score = {"step": event.step, "images": event.images, **event.values}
            with suppress(OSError):  # the record contains it
                write_text(self._score, json.dumps(score, indent=1) + "\n")


class RankWriter(Lines):
    """Writer of one rank's events over all attempts: start, throughput, bytes sent, loading, end.

    common: entries of every line. sent_bytes: counts of the rank's world, which it updates; read at log points. Losses
    and scores are equal on all ranks and are only in the record of the run.
    """

    def __init__(self, path: Path, common: Mapping[str, Any], sent_bytes: Mapping[str, int]) -> None:
        create_subfolder(path.parent.parent, path.parent.name)
        super().__init__(path)
        self._common = common
        self._sent_bytes = sent_bytes

    def write(self, event: Event) -> None:
        """Append the line of an event; ignores kinds that are equal on all ranks."""
        match event.kind:
            case "start":
                values = {"resumed": event.values["resumed"]}
            case "step":
                keys = [key for key in ("images_per_s", "data_wait") if key in event.values]
                pace = {key: event.values[key] for key in keys}
                values = {**pace, "sent_bytes": dict(self._sent_bytes)}
            case "event" | "end" | "loading":
                values = dict(event.values)
            case _:
                return
        head = replace(event, values={}).line
        self._append({**head, **self._common, "time": round(time.time(), 3), **values})


def _drop_repeated(path: Path, step: int) -> None:
    with open_regular_file(path) as before, atomic_write(path) as file:
        for line in before:
            kind, line_step = _kind_and_step(line)
            if line_step <= step and not (step == 0 and kind in _OF_UNTRAINED):
                file.write(line.rstrip(b"\r\n") + b"\n")


def _kind_and_step(line: bytes) -> tuple[object, float]:
    try:
        values = json.loads(line)
        return values.get("kind"), float(values["step"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None, float("inf")  # a line truncated by a kill
