"""The Prometheus endpoint: every line has the text format, on the loopback interface only."""

import http.client
import math
import re
import socket
import time
from contextlib import suppress

import pytest

from paragan.core import http_server
from paragan.core.event import Event
from paragan.writers import prometheus
from paragan.writers.prometheus import Options, Writer
from tests.contract.test_writers import NOTES

LABELS = r'\{[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\[\\"n])*")*\}'
SAMPLE = re.compile(rf"(paragan_[a-z_]+)((?:{LABELS})?) (NaN|[+-]Inf|-?[0-9.e+-]+)")
PHASES = {"steps": 2, "ranks": [0, 3], "phase_s": {"data": [0.5, 1.5], "other": [0.0, 0.25]}, "per_step": {}}


@pytest.fixture
def writer(tmp_path):
    made = Writer(Options(port=0), tmp_path)
    yield made
    made.close()


def samples(writer):
    """The samples of the page by name and labels."""
    status, page = get(writer)
    assert status == 200
    lines = [line for line in page.splitlines() if not line.startswith("# ")]
    parsed = [SAMPLE.fullmatch(line) for line in lines]
    assert all(parsed), lines
    found = {f"{match[1]}{match[2]}": float(match[3]) for match in parsed}
    assert len(found) == len(lines), "a sample is there twice"
    return found


def get(writer, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", writer.port, timeout=20)
    connection.request("GET", "/metrics", headers=headers)
    answer = connection.getresponse()
    page = answer.read().decode()
    connection.close()
    return answer.status, page


def test_page_has_the_numbers_of_all_events(writer):
    for note in NOTES:
        writer.write(note)
    found = samples(writer)
    assert found["paragan_step"] == 40 and found["paragan_images_total"] == 960
    assert found['paragan_value{kind="score",name="fd[judge]"}'] == 3
    assert math.isnan(found['paragan_value{kind="step",name="d/loss/adversarial"}'])
    assert found['paragan_events_total{kind="step"}'] == 2


def test_phases_and_bytes_add_up_over_log_points(writer):
    for step in (2, 4):
        writer.write(Event(kind="phases", step=step, images=step, values=PHASES))
        writer.write(
            Event(kind="traffic", step=step, images=step, values={"steps": 2, "sent": {}, "links": {"norm": 10.5}})
        )
    found = samples(writer)
    assert found['paragan_phase_seconds_total{phase="data",rank="3"}'] == 3
    assert found['paragan_link_bytes_total{kind="norm"}'] == 42


def test_labels_are_escaped(writer):
    writer.write(Event(kind="score", step=1, images=1, values={'a"b\\c\nd': math.inf}))
    assert samples(writer)[r'paragan_value{kind="score",name="a\"b\\c\nd"}'] == math.inf


def test_another_host_name_for_this_address_is_refused(writer):
    assert get(writer, Host="evil.example")[0] == 421


def test_a_port_in_use_is_a_warning(writer, tmp_path, capsys):
    second = Writer(Options(port=writer.port), tmp_path)
    second.write(NOTES[0])
    second.close()
    assert "numbers are not served, and training continues" in capsys.readouterr().err


def test_the_endpoint_ends_with_the_run(tmp_path):
    made = Writer(Options(port=0), tmp_path)
    made.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", made.port)) != 0


def slow_client(writer):
    """Return a client that asks for a page larger than the buffers of a connection, and never reads."""
    writer.write(
        Event(kind="score", step=1, images=1, values={f"{number}{'x' * 100_000}": 1.0 for number in range(200)})
    )
    connection = socket.create_connection(("127.0.0.1", writer.port), 10)
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.recv(1)
    return connection


def test_a_client_that_does_not_read_keeps_neither_others_nor_the_end_waiting(writer):
    with slow_client(writer):
        began = time.monotonic()
        assert get(writer, Host="evil.example")[0] == 421
        writer.close()
        assert time.monotonic() - began < 0.8 * http_server.SILENCE_S


def test_a_client_that_does_not_read_is_let_go_without_a_traceback(writer, monkeypatch, capfd):
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.2)
    with slow_client(writer) as connection:
        time.sleep(0.6)
        received = 0
        while piece := connection.recv(1 << 20):
            received += len(piece)
    assert received < 15_000_000
    assert capfd.readouterr().err == ""


def test_an_ipv6_address_is_served(tmp_path):
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with suppress(ConnectionResetError):
        made = Writer(Options(address="::1", port=0), tmp_path)
        try:
            with socket.create_connection(("::1", made.port), 5) as connection:
                connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: [::1]\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.0 200")
        finally:
            made.close()


def test_a_trickle_of_bytes_ends_at_a_deadline_and_connections_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_S", 0.5)
    made = Writer(Options(port=0), tmp_path)
    try:
        clients = [socket.create_connection(("127.0.0.1", made.port), 5) for _ in range(http_server.MAX_REQUESTS)]
        for client in clients:
            client.sendall(b"G")
        time.sleep(0.2)
        with socket.create_connection(("127.0.0.1", made.port), 5) as further:
            assert further.recv(1) == b""
        began = time.monotonic()
        for client in clients:
            assert client.recv(1) == b""
            client.close()
        assert time.monotonic() - began < 0.8 * http_server.SILENCE_S
    finally:
        made.close()
