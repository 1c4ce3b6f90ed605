"""HTTP server of a page where a trained generator is used, reachable from this machine only."""

import errno
import getpass
import hmac
import platform
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl

from paragan.core.command import program_command
from paragan.core.errors import ConfigError, DataError
from paragan.core.http_server import BoundedHandler, BoundedServer, is_local_host
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler
from paragan.extensions.serving.file_page import MAX_BYTES, FilePage
from paragan.extensions.serving.sample_page import SamplePage
from paragan.report.record_values import single_line

_ADDRESS = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TURN_S = 600.0  # longest wait for other requests, and longest computation
_UPLOAD_S = 300.0  # longest duration of reading a file


class SampleServer(BoundedServer, HTTPServer):
    """Server on the loopback interface of one generator, which runs for one request at a time.

    Its paths begin with a secret: other users of this machine can reach it. Raises `ConfigError` for
    a generator of several inputs, or if the port is in use.
    """

    def __init__(self, sampler: Sampler, title: str, port: int) -> None:
        is_applied = sampler.takes_condition or isinstance(sampler, TensorSampler)
        self.page = FilePage(sampler, title) if is_applied else SamplePage(sampler, title)
        self.running = threading.Lock()  # held while the generator runs
        self.secret = secrets.token_urlsafe(24)
        try:
            super().__init__((_ADDRESS, port), _Handler)
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

    def answer(self, query: str, content: bytes) -> bytes:
        """Return what the page requests. content: of a file that is sent.

        Raises `ConfigError` and `DataError` for invalid requests, `TimeoutError` if this or others take too long.
        """
        values = _values(query, self.page.names)
        if not self.running.acquire(timeout=_TURN_S):
            raise TimeoutError(f"other requests took {_TURN_S:g} s; try again")
        try:
            return self.page.answer(values, content, time.monotonic() + _TURN_S)
        finally:
            self.running.release()


class _Handler(BoundedHandler, BaseHTTPRequestHandler):
    """Handler that answers requests for this machine with the secret in their path."""

    server: SampleServer
    server_version = "paragan"
    sys_version = ""

    def do_GET(self) -> None:
        self.end_reading()
        host = self.headers.get("Host", "")  # with `ssh -L` the port may differ
        if not is_local_host(host):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "open this page as 127.0.0.1 or localhost\n")
            return
        secret, _, path = self.path.removeprefix("/").partition("/")
        name, _, query = path.partition("?")
        if not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            self._answer(HTTPStatus.FORBIDDEN, "open the complete URL that the terminal has printed\n")
        elif f"{self.command} {name}" == self.server.page.request:
            self._answer_request(query)
        elif self.command != "GET":
            self.send_error(HTTPStatus.NOT_IMPLEMENTED)
        elif not path and self.path.endswith("/"):
            self._answer(HTTPStatus.OK, self.server.page.html, "text/html", self.server.page.policy)
        else:
            self._answer(HTTPStatus.NOT_FOUND, f"not found; there are / and {self.server.page.request}\n")

    do_POST = do_GET

    def _answer_request(self, query: str) -> None:
        try:
            content = self._read_content() if self.command == "POST" else b""
            result = self.server.answer(query, content)
        except (ConfigError, DataError) as error:
            self._answer(HTTPStatus.BAD_REQUEST, f"{single_line(str(error))}\n")
        except TimeoutError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n")
        except Exception as error:  # such as too little memory: another request may succeed
            reason = single_line(f"{type(error).__name__}: {error}")
            print(f"cannot answer: {reason}", file=sys.stderr, flush=True)
            text = f"no result; see the terminal of `{program_command()} serve`\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        else:
            self._answer(HTTPStatus.OK, result, self.server.page.media_type)

    def _read_content(self) -> bytes:
        """Return the file of a request. Raises `ConfigError` if its size is not stated, or too large."""
        size = self.headers.get("Content-Length", "")
        if not (size.isascii() and size.isdecimal() and len(size) < 20 and int(size) <= MAX_BYTES):
            raise ConfigError(f"send a file of at most {MAX_BYTES >> 20} MiB, and its Content-Length")
        self.begin_reading(_UPLOAD_S)
        content = self.rfile.read(int(size))
        self.end_reading()
        return content

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer errors of the base class with our headers and without echoing the request."""
        self._answer(HTTPStatus(code), f"{HTTPStatus(code).phrase}\n")

    def _answer(
        self, status: HTTPStatus, body: str | bytes, kind: str = "text/plain", policy: str = "default-src 'none'"
    ) -> None:
        """Send an answer. body: text is sent as UTF-8. kind: media type. policy: of its content security."""
        if isinstance(body, str):
            body = body.encode()
            kind = f"{kind}; charset=utf-8"
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log requests."""


def _ssh_target() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no user name, as in some containers
        user = "USER"
    return f"{user}@{platform.node() or 'HOST'}"


def _values(query: str, known: Sequence[str]) -> dict[str, str]:
    """Return the values of a query by name. Raises `ConfigError` for a name that is unknown or given twice."""
    try:
        pairs = parse_qsl(query, strict_parsing=bool(query), max_num_fields=10)
    except ValueError:
        raise ConfigError("the query is invalid; write name=value&name=value") from None
    values = dict(pairs)
    if len(values) < len(pairs) or not values.keys() <= set(known):
        raise ConfigError(f"the query has an unknown or repeated name; use each of {', '.join(known)} once")
    return values
