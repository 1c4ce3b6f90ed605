"""Bounds of HTTP servers; tests of the servers themselves are with them."""

import threading

import pytest

from paragan.core.http_server import MAX_REQUESTS, BoundedServer


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError(), OSError()])
def test_bounded_server_without_a_thread_for_a_request_frees_its_slot(monkeypatch, error):
    def start(thread):
        raise error

    monkeypatch.setattr(threading.Thread, "start", start)
    server = BoundedServer()
    for _ in range(MAX_REQUESTS + 1):  # without a free slot it would close the connection, and raise nothing
        with pytest.raises(type(error)):
            server.process_request(None, None)
