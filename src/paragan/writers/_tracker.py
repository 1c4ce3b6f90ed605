"""Shared part of the writers of experiment trackers: a thread, so that training never waits."""

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Protocol

from PIL import Image

from paragan.core.errors import ConfigError, describe_error
from paragan.core.event import Event
from paragan.core.files import read_bytes, write_text
from paragan.core.printable import to_printable
from paragan.core.strict_yaml import read_file
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import to_pil_image

FINISH_S = 20.0  # longest wait for the server when the run ends
_MAX_PENDING = 256  # entries that wait for the tracker; further ones are dropped
_MAX_ID_BYTES = 100
_POLL_S = 0.2
STOPPED_CODES = (75, 85, 130)  # exit codes of runs that can resume: to try again, pre-empted, Ctrl-C
_NUMERIC_KINDS = ("step", "score", "telemetry")
_SECRET_NAME = re.compile(r"(key|token|secret|password|credentials?)$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True)
class Entry:
    """What a tracker records of one event, without tensors.

    protocol: of a score, everything that must be equal for two scores to compare; else empty.
    """

    step: int
    numbers: Mapping[str, float]
    protocol: Mapping[str, Any]
    sheet: Image.Image | None = None


class Tracker(Protocol):
    """One run of an experiment tracker, used by one thread; any method may raise or be slow."""

    def log(self, entry: Entry) -> None:
        """Record numbers, protocol and image sheet of a step."""

    def finish(self, code: int) -> None:
        """Finish the run. code: exit code of the process; 0: trained to the end."""


class TrackerWriter:
    """Writer that passes events to a tracker in a thread.

    Training waits for the tracker at the end only, at most 20 s. An entry that fails, or
    finds the queue full, is dropped; the first is reported in one line on standard error. A tracker
    that does not open raises at the next `write`, which switches the writer off.
    """

    def __init__(self, name: str, open_tracker: Callable[[], Tracker]) -> None:
        self._name = name
        self._entries: Queue[Entry] = Queue(_MAX_PENDING)
        self._is_closing = threading.Event()
        self._has_dropped = False
        self._code = 1  # of a run that closes without an `end` event
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(open_tracker,), name=f"writer-{name}", daemon=True)
        self._thread.start()

    def write(self, event: Event) -> None:
        """Queue the numbers and images of an event."""
        if self._error is not None:
            raise self._error
        if event.kind == "end":
            self._code = event.values["code"]
        sheet = None if event.x_BCHW is None else to_pil_image(make_sheet(event.x_BCHW, event.columns))
        numbers = event_numbers(event)
        if not numbers and sheet is None:
            return
        numbers["kimg"] = event.images / 1000
        try:
            self._entries.put_nowait(Entry(event.step, numbers, event_protocol(event), sheet))
        except Full:
            self._drop("it is slower than training")

    def close(self) -> None:
        """Finish the run; `TimeoutError` if the tracker takes longer than 20 s."""
        self._is_closing.set()
        self._thread.join(FINISH_S)
        if self._thread.is_alive():
            raise TimeoutError(f"not finished within {FINISH_S:g} s")
        if self._error is not None:
            raise self._error

    def _run(self, open_tracker: Callable[[], Tracker]) -> None:
        try:
            tracker = open_tracker()
            for entry in self._received():
                try:
                    tracker.log(entry)
                except Exception as error:
                    self._drop(printable_error(error))
            tracker.finish(self._code)
        except (Exception, SystemExit) as error:  # some clients call sys.exit
            self._error = OSError(printable_error(error))  # `write` raises it, without passwords of URLs

    def _drop(self, reason: str) -> None:
        if not self._has_dropped:
            self._has_dropped = True
            print_warning(
                self._name, f"values are missing there ({reason}); training continues, and metrics.jsonl has them"
            )

    def _received(self) -> Iterator[Entry]:
        while not (self._is_closing.is_set() and self._entries.empty()):
            with suppress(Empty):
                yield self._entries.get(timeout=_POLL_S)


def print_warning(name: str, text: str) -> None:
    """Print a warning of a writer on standard error, in one line."""
    print(to_printable(f"warning: writer {name}: {text}"), file=sys.stderr)


def printable_error(error: BaseException) -> str:
    """Return an error's message in one line, without passwords in URLs."""
    return _URL_PASSWORD.sub("***@", describe_error(error))[:200]


def event_numbers(event: Event) -> dict[str, float]:
    """Return the numbers of a step, a score or telemetry by `KIND/NAME`; else nothing."""
    if event.kind not in _NUMERIC_KINDS:
        return {}
    return {f"{event.kind}/{name}": value for name, value in event.values.items() if isinstance(value, float)}


def event_protocol(event: Event) -> dict[str, Any]:
    """Return the protocol of a score; empty for other events."""
    protocol = event.values.get("protocol") if event.kind == "score" else None
    return dict(protocol) if isinstance(protocol, Mapping) else {}


def run_config(folder: Path) -> dict[str, Any]:
    """Return the config of a run folder without secrets; empty if it has none yet."""
    path = folder / "config.yaml"
    config: dict[str, Any] = without_secrets(read_file(path, []).plain()) if path.exists() else {}
    return config


def without_secrets(value: Any, name: str = "") -> Any:
    """Return nested settings without passwords in URLs; settings named as a secret become `***`."""
    if isinstance(value, Mapping):
        return {key: without_secrets(entry, str(key)) for key, entry in value.items()}
    if isinstance(value, list):
        return [without_secrets(entry, name) for entry in value]
    if isinstance(value, str) and _SECRET_NAME.search(name):
        return "***"
    return _URL_PASSWORD.sub("***@", value) if isinstance(value, str) else value


def read_run_id(folder: Path) -> str | None:
    """Return the identifier of this run in a tracker, from its subfolder; None: not stored yet."""
    path = folder / "run_id"
    if not path.exists():
        return None
    stored = read_bytes(path, _MAX_ID_BYTES).decode("ascii", "replace").strip()
    if not re.fullmatch(r"[0-9a-z]{8,64}", stored):
        raise ConfigError(f"{path} does not hold the identifier of a run; remove it to start a new one")
    return stored


def save_run_id(folder: Path, identifier: str) -> None:
    """Store the identifier of this run in a tracker, so that a resume continues it."""
    write_text(folder / "run_id", identifier + "\n")


def require_package(name: str, extra: str) -> None:
    """Raise `ConfigError` if a tracker's package is not installed."""
    if find_spec(name) is None:
        fix = f"run {sys.executable} -m pip install 'paragan[{extra}]', or remove it from writers"
        raise ConfigError(f"writers: {name} is not installed; {fix}")
