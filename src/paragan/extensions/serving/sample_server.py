"""HTTP server of a page with images of a trained generator, reachable from this machine only.

`images?seed=0&num=16&class=3&truncation=0.7&walk=0.5` is a sheet as PNG: each latent is at `walk`, 0
to 1, on the great circle from that of `seed` to that of the next seed.
"""

from __future__ import annotations

import errno
import getpass
import hmac
import io
import math
import platform
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl

from paragan.core.command import program_command
from paragan.core.errors import ConfigError
from paragan.core.http_server import BoundedHandler, BoundedServer, is_local_host
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import check_inputs
from paragan.game import latents
from paragan.report.record_values import single_line
from paragan.report.rendering import sampler_page
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import to_pil_image

MAX_IMAGES = 64
_ADDRESS = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TURN_S = 600.0  # longest wait for other requests
_TILE_PX = 64  # images below are enlarged
_MAX_SEED = 2**53 - 1  # the largest integer of JavaScript


class SampleServer(BoundedServer, HTTPServer):
    """Server on the loopback interface of one generator, which runs for one request at a time.

    Its paths begin with a secret: other users of this machine can reach it. Raises `ConfigError` for
    a generator with other inputs, or if the port is in use.
    """

    def __init__(self, sampler: Sampler, title: str, port: int) -> None:
        check_inputs(sampler, "serve")
        self.sampler = sampler
        self.running = threading.Lock()
        view = {"title": title, "classes": sampler.class_names, "seed": sampler.seed, "most": MAX_IMAGES}
        self.page, self.policy = sampler_page(view)
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

    def sheet(self, query: str) -> bytes:
        """Return the images of a query as PNG.

        Raises `ConfigError` for an invalid one, `TimeoutError` if others run for too long.
        """
        values = _values(query)
        num = _number(values, "num", 16, 1, MAX_IMAGES)
        seed = _number(values, "seed", self.sampler.seed, 0, _MAX_SEED)
        walk = _fraction(values, "walk") or 0.0
        truncation = _fraction(values, "truncation")
        label = values.get("class")
        with self._turn():
            z_BZ = self.sampler.latents(num, seed, truncation)
            if walk:
                z_BZ = latents.slerp(z_BZ, self.sampler.latents(num, seed + 1, truncation), walk)
            y_B = self.sampler.labels(num, None if label is None else [label], seed, "class")
            images = self.sampler.generate(z_BZ, y_B, seed=seed, truncation=truncation).tensor
        file = io.BytesIO()
        to_pil_image(make_sheet(images, math.ceil(math.sqrt(num)), _TILE_PX)).save(file, "PNG")
        return file.getvalue()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self.running.acquire(timeout=_TURN_S):
            raise TimeoutError(f"other requests took {_TURN_S:g} s")
        try:
            yield
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
        elif not path and self.path.endswith("/"):
            self._answer(HTTPStatus.OK, self.server.page, "text/html", self.server.policy)
        elif name == "images":
            self._answer_images(query)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "not found; there are / and /images\n")

    def _answer_images(self, query: str) -> None:
        try:
            sheet = self.server.sheet(query)
        except ConfigError as error:
            self._answer(HTTPStatus.BAD_REQUEST, f"{error}\n")
        except Exception as error:  # such as too little memory: another request may succeed
            reason = single_line(f"{type(error).__name__}: {error}")
            print(f"cannot make images: {reason}", file=sys.stderr, flush=True)
            text = f"cannot make images; see the terminal of `{program_command()} serve`\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        else:
            self._answer(HTTPStatus.OK, sheet, "image/png")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer errors of the base class with our headers and without echoing the request."""
        self._answer(HTTPStatus(code), f"{HTTPStatus(code).phrase}\n")

    def _answer(
        self, status: HTTPStatus, body: str | bytes, kind: str = "text/plain", policy: str = "default-src 'none'"
    ) -> None:
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


def _ssh_target() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no user name, as in some containers
        user = "USER"
    return f"{user}@{platform.node() or 'HOST'}"


def _values(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, strict_parsing=bool(query), max_num_fields=10)
    except ValueError:
        raise ConfigError("the query is invalid; write name=value&name=value") from None
    values = dict(pairs)
    known = ("seed", "num", "class", "truncation", "walk")
    if len(values) < len(pairs) or not values.keys() <= set(known):
        raise ConfigError(f"the query has an unknown or repeated name; use each of {', '.join(known)} once")
    return values


def _number(values: dict[str, str], name: str, default: int, min_value: int, max_value: int) -> int:
    text: Any = values.get(name, default)
    if isinstance(text, int):
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and min_value <= int(text) <= max_value):
        raise ConfigError(f"{name} is invalid; pass an integer from {min_value} to {max_value}")
    return int(text)


def _fraction(values: dict[str, str], name: str) -> float | None:
    if name not in values:
        return None
    try:
        value = float(values[name])
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} is invalid; pass a number from 0 to 1")
    return value
