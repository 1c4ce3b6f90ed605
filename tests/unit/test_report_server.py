"""`paragan report --serve`: only this machine, only two addresses, only what belongs to the run."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from paragan.core.errors import ConfigError
from paragan.runs import report_server
from paragan.runs.report_server import open_report_server
from tests.browser import made_run
from tests.processes import running

SOURCES = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def server(tmp_path):
    made_run.make(tmp_path / "run", steps=20)
    with open_report_server(tmp_path / "run", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def ask(server, path: str, host: str = "localhost", method: str = "GET") -> tuple[int, dict[str, str], str]:
    """path: after the secret."""
    return ask_plainly(server, f"/{server.secret}{path}", host, method)


def ask_plainly(server, path: str, host: str = "localhost", method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def test_it_listens_on_the_loopback_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_it_shows_the_page_with_a_policy_and_keeps_it_out_of_frames(server):
    status, headers, page = ask(server, "/")
    assert status == 200 and "sngan-zoo" in page and "data-live=" in page
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert "Python" not in headers["Server"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:9999", "LocalHost:8765"])
def test_it_answers_to_its_own_names_behind_any_tunnel(server, host):
    assert ask(server, "/state", host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "", "localhost.evil.example", "192.168.0.7", "localhost:1@evil"]
)
def test_another_name_for_this_address_is_turned_away(server, host):
    for path in ("/", "/state"):
        status, _, text = ask(server, path, host)
        assert status == 421 and "sngan-zoo" not in text


@pytest.mark.parametrize(
    "path", ["", "/config.yaml", "/../config.yaml", "/metrics.jsonl", "/%2e%2e/", "/?x", "/favicon.ico"]
)
def test_there_is_nothing_else(server, path):
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/state", "/{0}S/", "/{1}/state", "/{2}/", "/x/{0}/", "/?{0}/", "//", "/%e9/"])
def test_without_the_secret_the_page_is_forbidden(server, path):
    path = path.format(server.secret, server.secret[:-1], server.secret.swapcase())
    status, headers, text = ask_plainly(server, path)
    assert status == 403 and server.secret not in text and "sngan-zoo" not in text
    assert_guarded(headers)


def test_every_start_has_another_secret_which_the_page_does_not_tell(server, tmp_path):
    with open_report_server(tmp_path / "run", 0) as other:
        assert other.secret != server.secret and len(server.secret) >= 32
    assert server.secret not in ask(server, "/")[2]
    assert server.address == f"http://127.0.0.1:{server.server_address[1]}/{server.secret}/"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_takes_nothing(server, method):
    status, headers, _ = ask(server, "/", method=method)
    assert status == 501
    assert_guarded(headers)


def assert_guarded(headers: dict[str, str]) -> None:
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["X-Frame-Options"] == "DENY" and headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.0\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET <script> / HTTP/1.0\r\n\r\n", 400),
        (b"HEAD / HTTP/1.0\r\n\r\n", 501),
        (b"GET /\xe9/ HTTP/1.0\r\nHost: localhost\r\n\r\n", 403),
    ],
)
def test_what_is_refused_carries_the_same_headers_and_no_echo(server, request_bytes, status):
    with socket.create_connection(server.server_address, 10) as connection:
        connection.sendall(request_bytes)
        with suppress(ConnectionResetError):  # it need not have read it all
            answer = http.client.HTTPResponse(connection, method=request_bytes.split()[0].decode())
            answer.begin()
            assert answer.status == status and b"script" not in answer.read()
            assert_guarded(dict(answer.getheaders()))


def test_server_prints_a_render_error_once_and_renders_again(server, monkeypatch, capsys):
    def fails(live: bool) -> str:
        raise ValueError("odd\x1b[2J\nrecord")

    with monkeypatch.context() as patched:
        patched.setattr(server.page, "render", fails)
        for _ in range(2):
            status, headers, text = ask(server, "/")
            assert status == 500 and text.count("\n") == 1 and "odd" not in text
            assert_guarded(headers)
    assert capsys.readouterr().err == "cannot render the page: ValueError: odd[2J record\n"
    assert ask(server, "/")[0] == 200


def test_the_state_changes_when_the_record_grows_and_not_otherwise(server):
    before = ask(server, "/state")[2]
    assert ask(server, "/state")[2] == before
    assert json.loads(before)["token"] in ask(server, "/")[2].replace("&#34;", '"')
    made_run.append(server.page.folder, made_run.line("event", 900, text="a new line"))
    assert ask(server, "/state")[2] != before
    assert "a new line" in ask(server, "/")[2]


def test_more_requests_than_it_has_threads_for_are_turned_away(server):
    silent = [socket.create_connection(server.server_address, 10) for _ in range(report_server._MAX_REQUESTS)]
    try:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask_again_and_again(server)
    finally:
        for connection in silent:
            connection.close()


def ask_again_and_again(server) -> None:
    for _ in range(50):  # the last of the silent ones may not have been counted yet
        ask(server, "/state")


def test_a_client_that_says_nothing_is_let_go(server, monkeypatch):
    monkeypatch.setattr(report_server._Handler, "timeout", 0.1)
    with socket.create_connection(server.server_address, 10) as silent:
        assert silent.recv(1) == b""


def test_a_client_that_trickles_is_let_go(server, monkeypatch):
    monkeypatch.setattr(report_server, "_REQUEST_S", 0.3)
    with socket.create_connection(server.server_address, 10) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nA: ")
        with pytest.raises(ConnectionError):
            trickle(slow)


def trickle(connection: socket.socket) -> None:
    for _ in range(200):  # pauses far shorter than the longest that is allowed
        connection.sendall(b"x")
        time.sleep(0.02)


def test_server_on_a_used_port_raises_one_line(server, tmp_path):
    port = server.server_address[1]
    with pytest.raises(ConfigError, match=rf"^--port {port} is in use; use --port 0 for any free port$"):
        open_report_server(tmp_path / "run", port)


def test_server_stops_on_ctrl_c_and_prints_its_urls(tmp_path):
    made_run.make(tmp_path / "run", steps=5)
    code = (
        "import sys; from pathlib import Path; from paragan.runs.report_server import serve_report; "
        "serve_report(Path(sys.argv[1]), 0)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with running(command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(SOURCES)}) as process:
        told = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    port = re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{32}/ ", told).group(1)
    assert f"ssh -L {port}:127.0.0.1:{port} " in told
