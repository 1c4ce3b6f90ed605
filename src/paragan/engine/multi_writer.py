"""The writers of a run, in order. One that fails is told of once and left out from then on: training goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from paragan.core.log_record import LogRecord, Writer
from paragan.core.printable import printable


class MultiWriter:
    """Fulfils `core.log_record.Writer` for all of them."""

    def __init__(self, writers: Iterable[tuple[str, Writer]]) -> None:
        self._writers = dict(writers)

    def write(self, note: LogRecord) -> None:
        failed: dict[str, BaseException] = {}
        for name, writer in self._writers.items():
            try:
                writer.write(note)
            except (Exception, SystemExit) as error:  # rich leaves so where the reader of a pipe is gone
                failed[name] = error
        for name, reason in failed.items():
            self._drop(name, reason, note)

    def close(self) -> None:
        for name, writer in list(self._writers.items()):
            try:
                writer.close()
            except (Exception, SystemExit) as error:
                print(_told(name, error), file=sys.stderr)

    def _drop(self, name: str, error: BaseException, note: LogRecord) -> None:
        with suppress(Exception, SystemExit):
            self._writers.pop(name).close()
        event = replace(note, kind="event", values={"text": _told(name, error)}, x_BCHW=None)
        if name == "console":
            print(event.values["text"], file=sys.stderr)
        self.write(event)


def _told(name: str, error: BaseException) -> str:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return printable(f"writer {name} failed ({reason}) and is switched off; training goes on")
