"""Bounds that every HTTP server of the package has, against clients that are slow, many, or of another site."""

import re
import socket
import threading
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any

MAX_REQUESTS = 16  # at a time; further connections are closed
SILENCE_S = 10.0  # longest pause of a client
REQUEST_S = 30.0  # longest duration of reading a request, so that a slow trickle of bytes ends
_LOCAL_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE | re.ASCII)


def is_local_host(host: str) -> bool:
    """Return whether a Host header names this machine; another name for its address is DNS rebinding."""
    return _LOCAL_HOSTS.fullmatch(host) is not None


class BoundedServer(ThreadingMixIn):
    """Mix-in of a server that answers a bounded number of requests at a time, in daemon threads."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, *arguments: Any) -> None:
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request if a slot is free; close the connection otherwise."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[attr-defined]
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started, which would release the slot
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection: clients close theirs at any time."""


class BoundedHandler:
    """Mix-in of a handler that ends a connection whose request is not read in time."""

    timeout: float | None = SILENCE_S
    connection: socket.socket

    def setup(self) -> None:
        super().setup()  # type: ignore[misc]
        self.begin_reading(REQUEST_S)

    def begin_reading(self, longest_s: float) -> None:
        """Close the connection unless `end_reading` is called in this time."""
        self._deadline = threading.Timer(longest_s, _shut_down, (self.connection,))
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        self.end_reading()
        super().finish()  # type: ignore[misc]

    def end_reading(self) -> None:
        """Note that the request is read: an answer may take longer, because it is ours."""
        self._deadline.cancel()


def _shut_down(request: socket.socket) -> None:
    with suppress(OSError):  # already closed
        request.shutdown(socket.SHUT_RDWR)
