"""Requests to a web server for byte ranges, over connections that are used again."""

from __future__ import annotations

import http.client
import os
import ssl
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

from paragan.core.errors import DataError
from paragan.storage.byte_store import MissingFileError
from paragan.storage.request_client import RequestClient, TransientError

_CHUNK_BYTES = 1 << 18
_TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)


class HttpClient(RequestClient):
    """Files below an http:// or https:// address. Needs a server with byte ranges.

    timeout_s: of one request, with its response; a connection must be made within a third of it.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address.rstrip("/")
        self._timeout_s = timeout_s
        self._place = urlsplit(self.address)
        self._context = ssl.create_default_context() if self._place.scheme == "https" else None
        self._process = os.getpid()
        self._idle: deque[http.client.HTTPConnection] = deque()  # `append` and `pop` are atomic
        weakref.finalize(self, _close, self._idle)

    def get(self, name: str, start: int, stop: int) -> bytes:
        with self._response("GET", name, {"Range": f"bytes={start}-{stop - 1}"}) as (response, deadline):
            if response.status == 200:
                problem = "the server ignores byte ranges"
                raise DataError(f"{self.where(name)}: {problem}; use one that supports them, such as nginx")
            return self._read_body(response, stop - start, deadline)

    def get_file(self, name: str, max_bytes: int) -> bytes:
        with self._response("GET", name, {}) as (response, deadline):
            body = self._read_body(response, max_bytes + 1, deadline)
        if response.length:  # what is left of the declared length
            raise TransientError("the response was cut")
        return body

    def size(self, name: str) -> int:
        with self._response("HEAD", name, {}) as (response, _):
            return int(response.headers.get("Content-Length") or 0)

    @contextmanager
    def _response(
        self, method: str, name: str, headers: dict[str, str]
    ) -> Iterator[tuple[http.client.HTTPResponse, float]]:
        """Send a request; yield the response and its deadline if the status is 200 or 206."""
        deadline = time.monotonic() + self._timeout_s
        try:
            connection, response = self._exchange(method, name, headers)
            try:
                self._check_status(response, name)
                yield response, deadline
            finally:
                is_whole = response.isclosed()  # read to the end
                if is_whole and not response.will_close:
                    self._idle.append(connection)
                else:
                    connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(_reason(error)) from None

    def _exchange(
        self, method: str, name: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Use an idle connection, or a new one if the server has closed it meanwhile."""
        if self._process != os.getpid():  # sockets are those of the parent
            self._idle.clear()
            self._process = os.getpid()
        target = f"{self._place.path}/{quote(name)}"
        while True:
            is_used = bool(self._idle)
            connection = self._idle.pop() if is_used else self._connect()
            try:
                connection.request(method, target, headers=headers)
                return connection, connection.getresponse()
            except BaseException as error:
                connection.close()
                if not (is_used and isinstance(error, ConnectionError)):
                    raise

    def _connect(self) -> http.client.HTTPConnection:
        host = self._place.hostname or ""
        timeout_s = self._timeout_s / 3  # also the longest wait for the next bytes
        if self._context is not None:
            return http.client.HTTPSConnection(host, self._place.port, timeout=timeout_s, context=self._context)
        return http.client.HTTPConnection(host, self._place.port, timeout=timeout_s)

    def _check_status(self, response: http.client.HTTPResponse, name: str) -> None:
        """Raise an error unless the status is 200 or 206."""
        status = response.status
        if status in (200, 206):
            return
        if status in _TRANSIENT_STATUS:
            raise TransientError(f"status {status}")
        if status in (404, 410):
            raise MissingFileError(f"{self.where(name)}: no such file (status {status}); check data.path")
        if status in (401, 403):
            raise DataError(f"{self.where(name)}: access denied (status {status}); use a server that needs no login")
        if status in (301, 302, 303, 307, 308):
            place = (response.headers.get("Location") or "").partition("?")[0]
            raise DataError(f"{self.where(name)}: redirected to {place}; pass the address of that folder")
        if status == 416:
            raise DataError(f"{self.where(name)}: shorter than in dataset.json; upload the file again")
        raise DataError(f"{self.where(name)}: status {status}; check data.path and the server")

    def _read_body(self, response: http.client.HTTPResponse, most: int, deadline: float) -> bytes:
        """Return at most so many bytes, all that arrive before the connection ends."""
        chunks = []
        missing = most
        while missing and (chunk := response.read(min(missing, _CHUNK_BYTES))):
            chunks.append(chunk)
            missing -= len(chunk)
            if time.monotonic() > deadline:
                raise TransientError(f"no complete response within {self._timeout_s:g} s")
        return b"".join(chunks)


def _close(connections: deque[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _reason(error: Exception) -> str:
    """Describe an error of the connection in a few words."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the response was cut"
    if isinstance(error, OSError):
        return str(error.strerror or type(error).__name__)
    return type(error).__name__
