"""Several writers as one, in order; a writer that fails is reported once and switched off."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from paragan.core.errors import describe_error
from paragan.core.event import Event, Writer
from paragan.core.printable import print_to_stderr


class MultiWriter:
    """A `core.event.Writer` that passes each event to several writers, by name.

    is_main: of the rank that prints for all. Warnings go to standard error, and rollbacks too without the console.
    """

    def __init__(self, writers: Iterable[tuple[str, Writer]], is_main: bool = True) -> None:
        self._writers = dict(writers)
        self._is_main = is_main

    def write(self, event: Event) -> None:
        """Pass the event to every writer; a writer that raises is switched off."""
        failed: dict[str, BaseException] = {}
        for name, writer in self._writers.items():
            try:
                writer.write(event)
            except (Exception, SystemExit) as error:  # rich exits if the reader has closed a pipe
                failed[name] = error
        self._switch_off(failed, event)
        if self._is_main and _is_for_stderr(event, "console" in self._writers):
            _warn(str(event.values["text"]).removeprefix("warning: "))

    def close(self) -> None:
        """Close every writer; failures go to standard error, as no writer is left for an event."""
        for name, writer in list(self._writers.items()):
            try:
                writer.close()
            except (Exception, SystemExit) as error:
                _warn(_failure_message(name, error))

    def _switch_off(self, failed: Mapping[str, BaseException], event: Event) -> None:
        """Close the writers that failed on an event, then send the others a line of text about each."""
        for name in failed:  # all of them before a message, on which they would fail again and be reported twice
            with suppress(Exception, SystemExit):
                self._writers.pop(name).close()
        for name, reason in failed.items():
            text = f"warning: {_failure_message(name, reason)} and is switched off; training continues"
            self.write(replace(event, kind="event", values={"text": text}, x_BCHW=None))


def _warn(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed standard error ends no run
        print_to_stderr(f"warning: {text}")


def _is_for_stderr(event: Event, has_console: bool) -> bool:
    """Return whether a text goes to standard error: a warning, which a console leaves out, or else a rollback."""
    is_warning = str(event.values.get("text", "")).startswith("warning:")
    return event.kind == "event" and (is_warning or ("rollback" in event.values and not has_console))


def _failure_message(name: str, error: BaseException) -> str:
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    return f"writer {name} failed ({where}{describe_error(error)[:200]})"
