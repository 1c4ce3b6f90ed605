"""Newest numbers of a run for a Prometheus server, at `http://ADDRESS:PORT/metrics`."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Annotated, Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from paragan.core.event import Event
from paragan.core.http_server import BoundedHandler, BoundedServer, is_local_host
from paragan.core.option_types import Interval
from paragan.writers._tracker import event_numbers, print_warning, require_package

if TYPE_CHECKING:
    from prometheus_client import Metric

_CLOSE_S = 2.0  # longest wait for the server at the end of a run
_LOOPBACK = re.compile(r"127\.0\.0\.1|::1|localhost")
_FAMILIES: dict[str, tuple[str, str, tuple[str, ...]]] = {  # type, meaning, labels
    "step": ("gauge", "Finished steps.", ()),
    "images_total": ("counter", "Real images through D, over all ranks.", ()),
    "session_seconds": ("gauge", "Seconds since the session began.", ()),
    "value": ("gauge", "Newest value by kind of event (step, score, telemetry) and name.", ("kind", "name")),
    "phase_seconds_total": ("counter", "Seconds by rank and phase in this session.", ("rank", "phase")),
    "link_bytes_total": ("counter", "Bytes on the links of all ranks by kind in this session.", ("kind",)),
    "events_total": ("counter", "Events by kind in this session.", ("kind",)),
}
_App = Callable[[dict[str, Any], Any], Iterable[bytes]]


@dataclass(frozen=True)
class Options:
    """Address of the endpoint. Numbers are neither encrypted nor protected by a password."""

    address: str = "127.0.0.1"
    """Address on which the run listens; other hosts reach only one that is not the loopback's."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 9464
    """Port; 0: any free one, which is printed."""


class Writer:
    """Writer that serves the newest numbers; requires `pip install 'paragan[prometheus]'`.

    Clients are answered in daemon threads, so a slow one keeps neither training nor its end waiting.
    A port in use is a warning.
    """

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        require_package("prometheus_client", "prometheus")
        self._samples: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _FAMILIES}  # by labels
        self._lock = Lock()
        self._server: WSGIServer | None = None
        app = self._app(is_local=bool(_LOOPBACK.fullmatch(options.address)))
        try:
            server_class = _ServerIPv6 if ":" in options.address else _Server
            self._server = make_server(options.address, options.port, app, server_class, _Handler)
        except OSError as error:
            where = f"{options.address}:{options.port} cannot be used ({error.strerror or error})"
            print_warning("prometheus", f"{where}; numbers are not served, and training continues")
            return
        if not options.port:
            host = f"[{options.address}]" if ":" in options.address else options.address
            print(f"metrics   http://{host}:{self.port}/metrics", flush=True)
        self._thread = Thread(target=self._server.serve_forever, name="writer-prometheus", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is served; 0: none."""
        return 0 if self._server is None else self._server.server_port

    def write(self, event: Event) -> None:
        """Add the numbers of an event."""
        with self._lock:
            self._samples["step"][()] = event.step
            self._samples["images_total"][()] = event.images
            self._samples["session_seconds"][()] = event.seconds
            self._add("events_total", 1, event.kind)
            for name, value in event_numbers(event).items():
                kind, _, rest = name.partition("/")
                self._samples["value"][kind, rest] = value
            if event.kind == "phases":
                self._add_phases(event.values)
            if event.kind == "traffic":
                for kind, num_bytes in event.values["links"].items():
                    self._add("link_bytes_total", num_bytes * event.values["steps"], kind)

    def collect(self) -> Iterator[Metric]:
        """Return all samples, as collectors of `prometheus_client` do."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            samples = {name: dict(values) for name, values in self._samples.items()}
        for name, (kind, meaning, labels) in _FAMILIES.items():
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = make(f"paragan_{name}", meaning, labels=labels)
            for values, sample in samples[name].items():
                family.add_metric(values, sample)
            yield family

    def close(self) -> None:
        """End the endpoint; answers that are under way are dropped with the process."""
        if self._server is not None:
            Thread(target=self._server.shutdown, daemon=True).start()
            self._thread.join(_CLOSE_S)
            self._server.server_close()

    def _app(self, is_local: bool) -> _App:
        """Return the application; a local one answers to this machine's names only (DNS rebinding)."""
        from prometheus_client import CollectorRegistry, make_wsgi_app

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        metrics: _App = make_wsgi_app(registry)

        def respond(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if is_local and not is_local_host(environ.get("HTTP_HOST", "")):
                start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
                return [b"open this page as 127.0.0.1 or localhost\n"]
            return metrics(environ, start_response)

        return respond

    def _add(self, name: str, value: float, *labels: str) -> None:
        self._samples[name][labels] = self._samples[name].get(labels, 0.0) + value

    def _add_phases(self, values: Mapping[str, Any]) -> None:
        for phase, by_rank in values["phase_s"].items():
            for rank, seconds in zip(values["ranks"], by_rank, strict=True):
                self._add("phase_seconds_total", seconds, str(rank), str(phase))


class _Server(BoundedServer, WSGIServer):
    pass


class _ServerIPv6(_Server):
    address_family = socket.AF_INET6


class _Handler(BoundedHandler, WSGIRequestHandler):
    def get_stderr(self) -> TextIO:
        """Drop tracebacks of clients that do not read."""
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
