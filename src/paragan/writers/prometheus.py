"""Newest numbers of a run for a Prometheus server, as text at `http://ADDRESS:PORT/metrics`.

The text format is written here: the client library would be one more dependency for three kinds of
lines (https://prometheus.io/docs/instrumenting/exposition_formats).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Annotated, Any

from paragan.core.event import Event
from paragan.core.option_types import Interval
from paragan.writers._tracker import event_numbers, print_warning

_SILENCE_S = 5.0  # longest pause of a client; requests are answered one by one
_LOOPBACK = re.compile(r"127\.0\.0\.1|::1|localhost")
_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE | re.ASCII)
_HELP = {
    "step": ("gauge", "Finished steps."),
    "images_total": ("counter", "Real images through D, over all ranks."),
    "session_seconds": ("gauge", "Seconds since the session began."),
    "value": ("gauge", "Newest value by kind of event (step, score, telemetry) and name."),
    "phase_seconds_total": ("counter", "Seconds by rank and phase in this session."),
    "link_bytes_total": ("counter", "Bytes on the links of all ranks by kind in this session."),
    "events_total": ("counter", "Events by kind in this session."),
}
_Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(frozen=True)
class Options:
    """Address of the endpoint. Numbers are neither encrypted nor protected by a password."""

    address: str = "127.0.0.1"
    """Address on which the run listens; other hosts reach only one that is not the loopback's."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 9464
    """Port; 0: any free one, which is printed."""


class Writer:
    """Writer that serves the newest numbers; a port in use is a warning."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._samples: _Samples = {}
        self._counters: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._lock = Lock()
        self._server: _Server | None = None
        try:
            self._server = _Server(options, self.text)
        except OSError as error:
            where = f"{options.address}:{options.port} cannot be used ({error.strerror or error})"
            print_warning("prometheus", f"{where}; numbers are not served, and training continues")
            return
        if not options.port:
            print(f"metrics   http://{options.address}:{self.port}/metrics", flush=True)
        Thread(target=self._server.serve_forever, name="writer-prometheus", daemon=True).start()

    @property
    def port(self) -> int:
        """The port that is served; 0: none."""
        return 0 if self._server is None else self._server.server_address[1]

    def write(self, event: Event) -> None:
        """Add the numbers of an event."""
        with self._lock:
            self._set("step", event.step)
            self._set("images_total", event.images)
            self._set("session_seconds", event.seconds)
            self._add("events_total", 1, kind=event.kind)
            for name, value in event_numbers(event).items():
                kind, _, rest = name.partition("/")
                self._set("value", value, kind=kind, name=rest)
            if event.kind == "phases":
                self._add_phases(event.values)
            if event.kind == "traffic":
                for kind, num_bytes in event.values["links"].items():
                    self._add("link_bytes_total", num_bytes * event.values["steps"], kind=kind)

    def text(self) -> str:
        """Return all samples in the text format."""
        with self._lock:
            samples = {**self._samples, **self._counters}
        lines = []
        for name, (kind, meaning) in _HELP.items():
            lines += [f"# HELP paragan_{name} {meaning}", f"# TYPE paragan_{name} {kind}"]
            lines += [_line(key, value) for key, value in samples.items() if key[0] == name]
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """End the endpoint."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _set(self, name: str, value: float, /, **labels: str) -> None:
        self._samples[name, tuple(labels.items())] = value

    def _add(self, name: str, value: float, /, **labels: str) -> None:
        self._counters[name, tuple(labels.items())] += value  # type: ignore[assignment]

    def _add_phases(self, values: Mapping[str, Any]) -> None:
        for phase, by_rank in values["phase_s"].items():
            for rank, seconds in zip(values["ranks"], by_rank, strict=True):
                self._add("phase_seconds_total", seconds, rank=str(rank), phase=str(phase))


def _line(key: tuple[str, tuple[tuple[str, str], ...]], value: float) -> str:
    name, labels = key
    escaped = [f'{label}="{_escape(text)}"' for label, text in labels]
    braces = f"{{{','.join(escaped)}}}" if escaped else ""
    number = repr(float(value)) if math.isfinite(value) else _not_finite(value)
    return f"paragan_{name}{braces} {number}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


class _Server(HTTPServer):
    """Server of one page; `text` makes it."""

    def __init__(self, options: Options, text: Any) -> None:
        self.text = text
        self.is_local = bool(_LOOPBACK.fullmatch(options.address))
        super().__init__((options.address, options.port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _SILENCE_S
    server: _Server
    server_version = "paragan"
    sys_version = ""

    def do_GET(self) -> None:
        if self.server.is_local and not _HOSTS.fullmatch(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)  # DNS rebinding
        elif self.path != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            body = self.server.text().encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
