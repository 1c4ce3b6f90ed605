"""`paragan serve`: images of a generator for this machine only; invalid queries are one line."""

import http.client
import io
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paragan.core import http_server
from paragan.core.errors import ConfigError
from paragan.extensions.serving import sample_server
from paragan.extensions.serving.sample_page import MAX_IMAGES
from paragan.extensions.serving.sample_server import SampleServer
from paragan.runs.open_generator import open_generator
from paragan.storage.image_sheet import make_sheet
from tests import tiny_run
from tests.processes import running
from tests.served_runs import serving

SOURCES = Path(__file__).resolve().parents[3] / "src"


@pytest.fixture(scope="module")
def sampler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "run"
    tiny_run.train(folder)
    return open_generator(folder)


@pytest.fixture(scope="module")
def server(sampler):
    with serving(sampler, "a <run>") as server:
        yield server


def fetch(server, path, host="localhost", secret=None, method="GET"):
    return fetch_plainly(server, f"/{server.secret if secret is None else secret}/{path}", host, method)


def fetch_plainly(server, path, host="localhost", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def pixels(body):
    return np.asarray(Image.open(io.BytesIO(body)))


def test_sample_server_page_has_classes_and_a_policy(server):
    status, headers, body = fetch(server, "")
    assert status == 200 and b"a &lt;run&gt;" in body and body.count(b"<option") == 11
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; img-src blob: data:; connect-src 'self'")


def test_sample_server_images_are_those_of_sample(server, sampler):
    status, headers, body = fetch(server, "images?seed=3&num=4&class=7&truncation=0.5")
    assert status == 200 and headers["Content-Type"] == "image/png"
    made = sampler.sample(4, labels=7, seed=3, truncation=0.5).tensor
    assert np.array_equal(pixels(body), make_sheet(made, 2, 64)[0].numpy())


def test_sample_server_walk_goes_from_one_seed_to_the_next(server):
    sheets = [
        pixels(fetch(server, f"images?num=1&class=0&{words}")[2]) for words in ("seed=3", "seed=3&walk=1", "seed=4")
    ]
    assert np.abs(sheets[1].astype(int) - sheets[2]).max() <= 1
    assert not np.array_equal(sheets[0], sheets[2])
    between = pixels(fetch(server, "images?num=1&class=0&seed=3&walk=0.5")[2])
    assert not any(np.array_equal(between, other) for other in sheets)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"num={MAX_IMAGES + 1}", "num is invalid; pass an integer from 1 to 64"),
        ("seed=-1", "seed is invalid"),
        ("seed=" + "9" * 30, "seed is invalid"),
        ("truncation=0", "truncation must be above 0"),
        ("truncation=x", "truncation is invalid; pass a number from 0 to 1"),
        ("walk=nan", "walk is invalid"),
        ("class=eleven", "class: unknown class 'eleven'"),
        ("class=10", "class: unknown class '10'"),
        ("path=/etc/passwd", "the query has an unknown or repeated name"),
        ("seed=1&seed=2", "the query has an unknown or repeated name"),
        ("seed", "the query is invalid"),
    ],
)
def test_sample_server_invalid_query_is_one_line(server, query, message):
    status, _, body = fetch(server, f"images?{query}")
    assert status == 400 and message in body.decode() and body.count(b"\n") == 1


def test_sample_server_answer_that_takes_long_arrives(server, sampler, monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_S", 0.2)
    real = sampler.generate

    def slow(_, *args, **options):
        time.sleep(1)
        return real(*args, **options)

    monkeypatch.setattr(type(sampler), "generate", slow)
    assert fetch(server, "images?num=1")[0] == 200


def test_sample_server_error_is_an_answer_and_a_line_of_the_terminal(server, sampler, monkeypatch, capsys):
    def fails(*args, **options):
        raise RuntimeError("out of\nmemory")

    with monkeypatch.context() as patched:
        patched.setattr(type(sampler), "generate", fails)
        status, _, body = fetch(server, "images?num=1")
    assert status == 500 and body.startswith(b"no result; see the terminal of ")
    assert capsys.readouterr().err == "cannot answer: RuntimeError: out of memory\n"
    assert fetch(server, "images?num=1")[0] == 200


def test_sample_server_wait_for_others_ends(server, monkeypatch):
    monkeypatch.setattr(sample_server, "_TURN_S", 0.1)
    with server.running:
        status, _, body = fetch(server, "images?num=1")
    assert (status, body) == (503, b"other requests took 0.1 s; try again\n")


def test_sample_server_is_on_the_loopback_alone_and_its_page_stays_out_of_frames_and_caches(server):
    assert server.server_address[0] == "127.0.0.1"
    headers = fetch(server, "")[1]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert "Python" not in headers["Server"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:9999", "LocalHost:8765"])
def test_sample_server_answers_to_its_names_behind_any_tunnel(server, host):
    assert fetch(server, "", host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "", "localhost.evil.example", "192.168.0.7", "localhost:1@evil"]
)
def test_sample_server_turns_another_name_for_its_address_away(server, host):
    for path in ("", "images?num=1"):
        status, _, body = fetch(server, path, host)
        assert status == 421 and b"run" not in body


@pytest.mark.parametrize(
    "path",
    ["config.yaml", "../run", "../config.yaml", "metrics.jsonl", "%2e%2e/", "?x", "favicon.ico", "images/"],
)
def test_sample_server_has_no_other_pages(server, path):
    assert fetch(server, path)[0] == 404
    assert fetch_plainly(server, f"/{server.secret}")[0] == 404  # the address ends with a slash


@pytest.mark.parametrize(
    "path", ["/", "/images", "/{0}S/", "/{1}/images", "/{2}/", "/x/{0}/", "/?{0}/", "//", "/%e9/", "/guess/"]
)
def test_sample_server_without_the_secret_is_forbidden(server, path):
    path = path.format(server.secret, server.secret[:-1], server.secret.swapcase())
    status, headers, body = fetch_plainly(server, path)
    assert status == 403 and server.secret.encode() not in body and b"a &lt;run&gt;" not in body
    assert_guarded(headers)


def test_sample_server_has_another_secret_at_every_start_which_the_page_does_not_contain(server, sampler):
    with SampleServer(sampler, "run", 0) as other:
        assert other.secret != server.secret and len(server.secret) >= 32
    assert server.secret.encode() not in fetch(server, "")[2]
    assert server.address == f"http://127.0.0.1:{server.server_address[1]}/{server.secret}/"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_sample_server_accepts_no_other_method(server, method):
    status, headers, _ = fetch(server, "", method=method)
    assert status == 501
    assert_guarded(headers)


def assert_guarded(headers):
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
def test_sample_server_refusals_have_the_same_headers_and_no_echo(server, request_bytes, status):
    with socket.create_connection(server.server_address, 10) as connection:
        connection.sendall(request_bytes)
        with suppress(ConnectionResetError):  # it need not have read it all
            answer = http.client.HTTPResponse(connection, method=request_bytes.split()[0].decode())
            answer.begin()
            assert answer.status == status and b"script" not in answer.read()
            assert_guarded(answer.headers)


def test_sample_server_turns_more_requests_than_it_has_threads_for_away(server):
    silent = [socket.create_connection(server.server_address, 10) for _ in range(http_server.MAX_REQUESTS)]
    try:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            fetch_again_and_again(server)
    finally:
        for connection in silent:
            connection.close()


def fetch_again_and_again(server):
    for _ in range(50):  # the last of the silent ones may not have been counted yet
        fetch(server, "")


def test_sample_server_closes_the_connection_of_a_silent_client(server, monkeypatch):
    monkeypatch.setattr(sample_server._Handler, "timeout", 0.1)
    with socket.create_connection(server.server_address, 10) as silent:
        assert silent.recv(1) == b""


def test_sample_server_closes_the_connection_of_a_slow_client(server, monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_S", 0.3)
    with socket.create_connection(server.server_address, 10) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nA: ")
        with pytest.raises(ConnectionError):
            trickle(slow)


def trickle(connection):
    for _ in range(200):  # pauses far shorter than the longest that is allowed
        connection.sendall(b"x")
        time.sleep(0.02)


def test_sample_server_on_a_used_port_raises_one_line(server, sampler):
    port = server.server_address[1]
    with pytest.raises(ConfigError, match=f"--port {port} is in use"):
        SampleServer(sampler, "run", port)


def test_sample_server_stops_on_ctrl_c_and_prints_its_urls(tmp_path):
    tiny_run.train(tmp_path / "run")
    command = [sys.executable, "-m", "paragan", "serve", str(tmp_path / "run"), "--port", "0"]
    with running(command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(SOURCES)}) as process:
        printed = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    port = re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{32}/ ", printed).group(1)
    assert f"ssh -L {port}:127.0.0.1:{port} " in printed
