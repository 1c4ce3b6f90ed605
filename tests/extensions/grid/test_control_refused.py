"""What the ends of the control plane refuse: strangers, and those who know half of it. The others always go on."""

import socket
import struct
import time
from contextlib import suppress

import pytest

from paragan.core.errors import RankError
from paragan.extensions.grid.transports import control, control_connection
from paragan.extensions.grid.transports.control import Listener, connect
from paragan.extensions.grid.transports.control_connection import ControlConnection
from paragan.extensions.grid.transports.signed_frames import DOWN, HEAD, UP, FrameSigner, session_key
from tests.extensions.grid.test_control import TOKEN, WAIT_S, nothing_is_left_over, until  # noqa: F401 a fixture


@pytest.fixture
def listener():
    """One that has a worker already, which must not notice anything."""
    listener = Listener(TOKEN)
    worker = connect(TOKEN, *listener.address, WAIT_S, {})
    line = listener.accept(WAIT_S)
    yield listener
    worker.send("told")
    line.send("order")
    assert (line.receive(WAIT_S), worker.receive(WAIT_S)) == ({"kind": "told"}, {"kind": "order"})
    assert listener.accept(0.0) is None, "somebody was taken for a worker"
    worker.close()
    listener.close()


def read(sock, count):
    data = b""
    while len(data) < count and (piece := sock.recv(count - len(data))):
        data += piece
    return data


def no_more(sock):
    with suppress(OSError):  # it has been refused already
        sock.shutdown(socket.SHUT_WR)


def hears_nothing(sock):
    """The other end closed it; where bytes were left unread there, with a reset."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def frame(sock):
    head = read(sock, HEAD.size)
    return head, read(sock, HEAD.unpack(head)[0])


class Raw:
    """A worker down to its bytes, which can say what no `ControlConnection` would."""

    def __init__(self, address, token=TOKEN, own=bytes(32)):
        self.sock = socket.create_connection(address, WAIT_S)
        self.challenge = frame(self.sock)
        said = FrameSigner(session_key(token), DOWN).unpack(*self.challenge) if token == TOKEN else {"nonce": "00" * 32}
        self.token, self.own, self.other = token, own, bytes.fromhex(said["nonce"])

    def hello(self, **values):
        key = session_key(self.token, self.other)
        return FrameSigner(key, UP).pack({"nonce": self.own.hex(), "about": {}} | values)

    def enter(self):
        """As any worker does; from here on `out` signs what the coordinator takes."""
        self.sock.sendall(self.hello())
        self.out = FrameSigner(session_key(self.token, self.other, self.own), UP)
        self.welcome = frame(self.sock)
        return self


def spoilt(data):
    return data[:-1] + bytes([data[-1] ^ 1])


LONG = struct.pack(">I", 2**32 - 1) + bytes(32)
UNFIT = "a frame has an invalid signature"
CUT, UNKIND = "the other end closed the connection within a frame", "sent a message without a kind"
STRANGERS = {
    "another protocol": (
        lambda raw: b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8765\r\n\r\n",
        "a frame of 1195725856 bytes is invalid",
    ),
    "a length of 4 GiB": (lambda raw: LONG, "a frame of 4294967295 bytes is invalid; the range is 2 to 4096"),
    "a hello of 5 KB": (lambda raw: struct.pack(">I", 5000) + bytes(5032), "a frame of 5000 bytes is invalid"),
    "a forged signature": (lambda raw: spoilt(raw.hello()), UNFIT),
    "our own hello": (lambda raw: b"".join(raw.challenge), UNFIT),
    "no nonce": (lambda raw: raw.hello(nonce=None), "sent no valid nonce"),
    "a short nonce": (lambda raw: raw.hello(nonce="ab"), "sent no valid nonce"),
    "half a hello": (lambda raw: raw.hello()[:50], CUT),
    "nothing": (lambda raw: b"", "the other end closed the connection"),
}


@pytest.mark.parametrize("say", STRANGERS)
def test_a_stranger_is_turned_away_in_one_line(listener, say):
    said, told = STRANGERS[say]
    raw = Raw(listener.address)
    who = "{}:{}: ".format(*raw.sock.getsockname())
    raw.sock.sendall(said(raw))
    no_more(raw.sock)
    assert until(lambda: listener.refused)
    (line,) = listener.refused
    assert line.startswith(who) and told in line and "\n" not in line
    raw.sock.close()


def test_another_token_is_refused_at_both_ends(listener, monkeypatch):
    monkeypatch.setattr(control, "_PAUSE_S", 2 * WAIT_S)  # one attempt
    raw = Raw(listener.address, token="6f" * 32)
    raw.sock.sendall(raw.hello())
    assert until(lambda: listener.refused) and UNFIT in listener.refused[0]
    with pytest.raises(RankError, match=f"{UNFIT}.*; check that it .* token is that of its run"):
        connect("6f" * 32, *listener.address, WAIT_S, {})
    raw.sock.close()


INTRUDERS = {
    "a forged signature": (lambda raw: spoilt(raw.out.pack({"kind": "a"})), UNFIT),
    "a repeated frame": (lambda raw: raw.first, UNFIT),
    "a later frame first": (lambda raw: [raw.out.pack({"kind": kind}) for kind in "ab"][1], UNFIT),
    "a reflected frame": (lambda raw: b"".join(raw.welcome), UNFIT),
    "a length of 4 GiB": (lambda raw: LONG, "a frame of 4294967295 bytes is invalid; the range is 2 to 1048576"),
    "a truncated frame": (lambda raw: raw.out.pack({"kind": "a"})[:-1], CUT),
    "a head alone": (lambda raw: raw.out.pack({"kind": "a"})[: HEAD.size], CUT),
    "no kind": (lambda raw: raw.out.pack({"a": 1}), UNKIND),
    "a number as kind": (lambda raw: raw.out.pack({"kind": 1}), UNKIND),
}


@pytest.mark.parametrize("say", INTRUDERS)
def test_who_came_in_and_then_breaks_the_rules_loses_that_line_alone(listener, say):
    said, told = INTRUDERS[say]
    raw = Raw(listener.address).enter()
    line = listener.accept(WAIT_S)
    raw.first = raw.out.pack({"kind": "first"})
    raw.sock.sendall(raw.first)
    assert line.receive(WAIT_S) == {"kind": "first"}
    raw.sock.sendall(said(raw))
    no_more(raw.sock)
    reason = until(lambda: line.disconnect_reason)
    assert reason.startswith(f"{line.peer_address}: ") and told in reason and "\n" not in reason
    assert line.receive(WAIT_S) is None
    with pytest.raises(RankError, match="^" + line.peer_address):
        line.send("more")
    assert hears_nothing(raw.sock)
    raw.sock.close()


def test_half_a_frame_and_then_nothing_loses_the_line(monkeypatch):
    monkeypatch.setattr(control_connection, "SEND_S", 0.3)
    listener = Listener(TOKEN)
    raw = Raw(listener.address).enter()
    line = listener.accept(WAIT_S)
    raw.sock.sendall(raw.out.pack({"kind": "a"})[: HEAD.size])
    assert until(lambda: line.disconnect_reason) == f"{line.peer_address}: did not send a whole frame in time"
    [end.close() for end in (raw.sock, listener)]


def test_what_was_recorded_fits_no_other_connection(listener):
    raw = Raw(listener.address)
    hello = raw.hello()
    order = raw.enter().out.pack({"kind": "stop"})
    listener.accept(WAIT_S)
    for data in (hello + order, hello, order):
        listener.refused.clear()
        with socket.create_connection(listener.address, WAIT_S) as sock:
            frame(sock)
            sock.sendall(data)
            assert hears_nothing(sock)
        assert until(lambda: listener.refused) and UNFIT in listener.refused[0]
    raw.sock.close()


def test_a_recorded_coordinator_gets_nothing_from_a_worker(listener):
    """The first frame fits, as it must: it greets somebody unknown. The next would have to know the worker's nonce."""
    raw = Raw(listener.address).enter()
    line = listener.accept(WAIT_S)
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = ControlConnection(socket.create_connection(server.getsockname()), "coordinator")
        sock, _ = server.accept()
        with sock:
            sock.sendall(b"".join((*raw.challenge, *raw.welcome)))
            with pytest.raises(RankError, match=f"^coordinator: {UNFIT}"):
                worker.request_handshake(TOKEN, time.monotonic() + WAIT_S, {})
    raw.sock.close()
    [end.close() for end in (line, worker)]


def test_slow_handshake_is_dropped_without_delaying_others(listener, monkeypatch):
    """More of them than are served at once, each a byte now and then, which no limit per `recv` would end."""
    monkeypatch.setattr(control, "_HANDSHAKE_S", 1.0)
    slow = [socket.create_connection(listener.address, WAIT_S) for _ in range(70)]
    began = time.monotonic()
    while len(listener.refused) < 64 and time.monotonic() < began + WAIT_S:
        for sock in slow:
            with suppress(OSError):
                sock.send(b"\0")
        time.sleep(0.1)
    assert len(listener.refused) >= 64 and all("in time" in told for told in listener.refused)
    worker = connect(TOKEN, *listener.address, WAIT_S, {"pid": 2})
    assert listener.accept(WAIT_S).peer_info == {"pid": 2}
    worker.close()
    [sock.close() for sock in slow]
