"""HTTP servers that are reachable from this machine only, and the one of a live run's report page."""

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
    from paragan.report.page import Page

_ADDRESS = "127.0.0.1"
_MAX_REQUESTS = 16
_SILENCE_S = 10.0  # longest pause of a client
_REQUEST_S = 30.0  # longest duration of reading a request, so that a slow trickle of bytes ends
_HOSTS = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.IGNORECASE | re.ASCII)
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def serve_report(run: Path, port: int) -> None:
    """Serve the report page of a run until Ctrl-C."""
    with open_report_server(run, port) as server:
        server.serve_until_interrupted()


def open_report_server(run: Path, port: int) -> ReportServer:
    """Return a server that is bound but not serving yet. port 0: any free port.

    Raises `CheckpointError` if `run` is not a run folder, `ConfigError` if the port is in use.
    """
    from paragan.report.page import Page

    return ReportServer(Page(run), port)


class LoopbackServer(ThreadingHTTPServer):
    """Server on the loopback interface, with a secret in its paths: other users can reach it.

    Raises `ConfigError` if the port is in use.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, port: int, handler: type[LoopbackHandler]) -> None:
        self.secret = secrets.token_urlsafe(24)  # first part of every path
        self._slots = threading.BoundedSemaphore(_MAX_REQUESTS)
        try:
            super().__init__((_ADDRESS, port), handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            reason = "in use" if error.errno == errno.EADDRINUSE else "not permitted for this user"
            raise ConfigError(f"--port {port} is {reason}; use --port 0 for any free port") from None

    def serve_until_interrupted(self) -> None:
        """Print the address, and serve until Ctrl-C."""
        port = self.server_address[1]
        with suppress(KeyboardInterrupt):
            print(f"{self.address}  (Ctrl-C to stop)")
            tunnel = f"ssh -L {port}:{_ADDRESS}:{port} {_ssh_target()}"
            print(f"from another machine: {tunnel}  and open the same URL", flush=True)
            self.serve_forever()

    @property
    def address(self) -> str:
        """URL of the page."""
        return f"http://{_ADDRESS}:{self.server_address[1]}/{self.secret}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request if a slot is free; close the connection otherwise."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection: browsers close theirs at any time."""


class ReportServer(LoopbackServer):
    """Server of the report page of a run."""

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.rendering = threading.Lock()
        self._last_error = ""
        super().__init__(port, _Handler)

    def render(self) -> str | None:
        """Return the page; None if it cannot be rendered. An error is printed once."""
        from paragan.report.record_values import single_line

        try:
            with self.rendering:
                return self.page.render(live=True)
        except Exception as error:  # a later request may succeed: the record grows
            message = single_line(f"cannot render the page: {type(error).__name__}: {error}")
            if message != self._last_error:
                print(message, file=sys.stderr, flush=True)
            self._last_error = message
            return None


class LoopbackHandler(BaseHTTPRequestHandler):
    """Handler that answers requests for this machine with the secret in their path."""

    timeout = _SILENCE_S
    server: LoopbackServer
    server_version = "paragan"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self._reading = threading.Timer(_REQUEST_S, _shut_down, (self.connection,))
        self._reading.daemon = True
        self._reading.start()

    def finish(self) -> None:
        self._reading.cancel()
        super().finish()

    def do_GET(self) -> None:
        self._reading.cancel()  # an answer may take longer: it is ours
        host = self.headers.get("Host", "")  # with `ssh -L` the port may differ
        if not _HOSTS.fullmatch(host):  # DNS rebinding: another name for this address
            text = "open this page as 127.0.0.1 or localhost\n"
            self.answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", text)
            return
        secret, _, page = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            text = "open the complete URL that the terminal has printed\n"
            self.answer(HTTPStatus.FORBIDDEN, "text/plain", text)
        elif self.path.endswith("/") or page:
            self.respond(page)
        else:
            self.answer(HTTPStatus.NOT_FOUND, "text/plain", "not found; end the address with /\n")

    def respond(self, page: str) -> None:
        """Answer a request. page: the path after the secret, with the query."""
        raise NotImplementedError

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer errors of the base class with our headers and without echoing the request."""
        self.answer(HTTPStatus(code), "text/plain", f"{HTTPStatus(code).phrase}\n")

    def answer(self, status: HTTPStatus, kind: str, body: str | bytes, policy: str = "default-src 'none'") -> None:
        """Send an answer. kind: its media type; of text in UTF-8. policy: of its content security."""
        is_text = isinstance(body, str)
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if is_text else kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log requests."""


class _Handler(LoopbackHandler):
    server: ReportServer

    def respond(self, page: str) -> None:
        if not page:
            self._page()
        elif page == "state":
            state = json.dumps({"token": self.server.page.token()})
            self.answer(HTTPStatus.OK, "application/json", state)
        else:
            self.answer(HTTPStatus.NOT_FOUND, "text/plain", "not found; there are / and /state\n")

    def _page(self) -> None:
        from paragan.report.rendering import page_policy

        page = self.server.render()
        if page is None:
            command = f"{program_command()} report --serve"
            text = f"cannot render the page; see the terminal of `{command}`\n"
            self.answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", text)
        else:
            self.answer(HTTPStatus.OK, "text/html", page, page_policy(live=True))


def _shut_down(request: socket.socket) -> None:
    with suppress(OSError):  # already closed
        request.shutdown(socket.SHUT_RDWR)


def _ssh_target() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no user name, as in some containers
        user = "USER"
    return f"{user}@{platform.node() or 'HOST'}"
