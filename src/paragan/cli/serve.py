"""`paragan report --serve`: the page of a live run, to this machine alone and to nobody else."""

from __future__ import annotations

import errno
import getpass
import hmac
import json
import platform
import re
import secrets
import socket
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paragan.core.command import program_command
from paragan.core.errors import ConfigError

if TYPE_CHECKING:
    from paragan.writers.report import Page

_ADDRESS = "127.0.0.1"
_AT_ONCE = 16
_PAUSE_S, _REQUEST_S = 10.0, 30.0  # the longest silence; all of a request, so that a trickle of bytes ends, too
_HOSTS = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.IGNORECASE | re.ASCII)
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def serve(run: Path, port: int) -> None:
    """Until Ctrl-C, which is the way to end it and no error."""
    with open_server(run, port) as server, suppress(KeyboardInterrupt):
        port = server.server_address[1]
        print(f"{server.address}  (Ctrl-C ends)")
        print(f"from elsewhere: ssh -L {port}:{_ADDRESS}:{port} {_me()}  and open the same address there", flush=True)
        server.serve_forever()


def open_server(run: Path, port: int) -> Server:
    """Bound and not serving yet. port 0: any that is free.

    Raises `CheckpointError` where `run` is no run folder, `ConfigError` where the port is taken.
    """
    from paragan.writers.report import Page

    try:
        return Server(Page(run), port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "in use" if error.errno == errno.EADDRINUSE else "not allowed here"
        raise ConfigError(f"--port: found {port}, which is {why}, expected a free one; try --port 0") from None


class Server(ThreadingHTTPServer):
    """On the loopback alone, to those who know its secret: other users of the machine reach the loopback, too.

    At most so many requests at once; one more is turned away.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, page: Page, port: int) -> None:
        self.page, self.rendering = page, threading.Lock()
        self.secret = secrets.token_urlsafe(24)  # the first part of every path
        self._said = ""
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__((_ADDRESS, port), _Handler)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{_ADDRESS}:{self.server_address[1]}/{self.secret}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(_REQUEST_S, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._slots.release()

    def render(self) -> str | None:
        """The page; None where it cannot be made, which the terminal says once."""
        from paragan.report.record import single_line

        try:
            with self.rendering:
                return self.page.render(live=True)
        except Exception as error:  # whatever it is, the next request finds a longer record
            told = single_line(f"the page cannot be made: {type(error).__name__}: {error}")
            if told != self._said:
                print(told, file=sys.stderr, flush=True)
            self._said = told
            return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _PAUSE_S
    server: Server
    server_version, sys_version = "paragan", ""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")  # behind `ssh -L` the port may be another
        if not _HOSTS.fullmatch(host):  # another name for this address: a page from elsewhere asks
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "open this page as 127.0.0.1 or localhost\n")
            return
        secret, _, page = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            text = "open the whole address, as the terminal has printed it\n"
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", text)
        elif self.path.endswith("/") and not page:
            self._page()
        elif page == "state":
            self._answer(HTTPStatus.OK, "application/json", json.dumps({"token": self.server.page.token()}))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is the page, and state\n")

    def _page(self) -> None:
        page = self.server.render()
        if page is None:
            why = f"the page cannot be made; the terminal of `{program_command()} report --serve` says why\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", why)
        else:
            self._answer(HTTPStatus.OK, "text/html", page, self.server.page.policy(live=True))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself, with our headers and without an echo of the request."""
        self._answer(HTTPStatus(code), "text/plain", f"{HTTPStatus(code).phrase}\n")

    def _answer(self, status: HTTPStatus, kind: str, text: str, policy: str = "default-src 'none'") -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """The terminal stays quiet."""


def _cut(request: socket.socket) -> None:
    with suppress(OSError):  # answered meanwhile
        request.shutdown(socket.SHUT_RDWR)


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name behind this number, in a container
        user = "USER"
    return f"{user}@{platform.node() or 'HOST'}"
