"""Several writers as one, in order; a writer that fails is reported once and switched off."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from paragan.core.event import Event, Writer
from paragan.core.printable import to_printable


class MultiWriter:
    """A `core.event.Writer` that passes each event to several writers, by name."""

    def __init__(self, writers: Iterable[tuple[str, Writer]]) -> None:
        self._writers = dict(writers)

    def write(self, event: Event) -> None:
        """Pass the event to every writer; a writer that raises is switched off."""
        failed: dict[str, BaseException] = {}
        for name, writer in self._writers.items():
            try:
                writer.write(event)
            except (Exception, SystemExit) as error:  # rich exits if the reader has closed a pipe
                failed[name] = error
        for name, reason in failed.items():
            self._drop(name, reason, event)

    def close(self) -> None:
        """Close every writer; failures go to standard error."""
        for name, writer in list(self._writers.items()):
            try:
                writer.close()
            except (Exception, SystemExit) as error:
                print(f"warning: {_failure_message(name, error)}", file=sys.stderr)

    def _drop(self, name: str, error: BaseException, event: Event) -> None:
        with suppress(Exception, SystemExit):
            self._writers.pop(name).close()
        text = f"{_failure_message(name, error)} and is switched off; training continues"
        if name == "console":
            print(text, file=sys.stderr)
        self.write(replace(event, kind="event", values={"text": text}, x_BCHW=None))


def _failure_message(name: str, error: BaseException) -> str:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return to_printable(f"writer {name} failed ({reason})")
