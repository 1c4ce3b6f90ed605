"""Frames of the control plane: what was sent comes out, and nothing else does."""

import hmac
import json
import os
import stat
import struct

import pytest
from hypothesis import given, settings, strategies as some

from paragan.core.errors import ConfigError, RankError
from paragan.extensions.grid.transports import control, signed_frames
from paragan.extensions.grid.transports.signed_frames import DOWN, HEAD, UP, FrameSigner, session_key
from paragan.extensions.grid.workers.handshake import find_token, new_token, save_token

TOKEN = "ab" * 32
KEY = session_key(TOKEN, b"n" * 32)
FEW = settings(max_examples=30, deadline=None)

scalars = some.none() | some.booleans() | some.integers(-(2**70), 2**70) | some.text()
scalars |= some.floats(allow_nan=False, allow_infinity=False)
nests = some.recursive(
    scalars,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=9,
)
objects = some.dictionaries(some.text(), nests, max_size=5)


def ends(**options):
    return FrameSigner(KEY, DOWN, **options), FrameSigner(KEY, DOWN, **options)


def opened(seal, frame):
    head, body = frame[: HEAD.size], frame[HEAD.size :]
    assert seal.body_size(head) == len(body)
    return seal.unpack(head, body)


def signed(seal, body):
    """A frame as only one who knows the key can make it, of any body."""
    return HEAD.pack(len(body), seal._signature(body)) + body


@FEW
@given(some.lists(objects, max_size=2))
def test_what_was_sent_comes_out(messages):
    out, into = ends()
    assert [opened(into, out.pack(values)) for values in messages] == messages


@FEW
@given(objects, some.data())
def test_one_changed_bit_is_noticed(values, data):
    out, into = ends()
    frame = bytearray(out.pack(values))
    frame[data.draw(some.integers(4, len(frame) - 1))] ^= 1 << data.draw(some.integers(0, 7))
    with pytest.raises(RankError, match="signature"):
        opened(into, bytes(frame))


@pytest.mark.parametrize(
    "other",
    [
        FrameSigner(session_key(TOKEN, b"m" * 32), DOWN),
        FrameSigner(session_key(new_token(), b"n" * 32), DOWN),
        FrameSigner(KEY, UP),
    ],
)
def test_a_frame_of_another_session_token_or_direction_does_not_fit(other):
    with pytest.raises(RankError, match="signature"):
        opened(FrameSigner(KEY, DOWN), other.pack({"a": 1}))


@pytest.mark.parametrize("size", [0, 1, 101, 2**31, 2**32 - 1])
def test_a_size_that_no_frame_has_is_refused_by_its_head_alone(size):
    with pytest.raises(RankError, match=f"a frame of {size} bytes is invalid; the range is 2 to 100"):
        FrameSigner(KEY, DOWN, 100).body_size(struct.pack(">I", size) + bytes(32))


@pytest.mark.parametrize(
    "body",
    [
        *(b"[1]", b"12", b"null", b'"text"', b'{"a', b"{}{}", b"  "),
        *(b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":1e999}', b'{"a":[-1e999]}'),
        *(b'{"a":"\xff"}', '{"a":1}'.encode("utf-16"), b"\xef\xbb\xbf{}"),
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 500_000,
        b'{"a":' + b"1" * 5000 + b"}",
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
def test_signed_or_not_only_plain_objects_are_taken(body):
    with pytest.raises(RankError, match="a signed frame is not a JSON object with finite numbers"):
        opened(FrameSigner(KEY, DOWN), signed(FrameSigner(KEY, DOWN), body))


def test_nothing_is_parsed_that_is_not_signed(monkeypatch):
    out, into = ends()
    frame = bytearray(out.pack({"a": 1}))
    frame[5] ^= 1
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("parsed"))
    with pytest.raises(RankError, match="signature"):
        opened(into, bytes(frame))


def test_signatures_are_compared_in_constant_time(monkeypatch):
    out, into = ends()
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or True)
    opened(into, out.pack({"a": 1}))
    assert len(compared) == 1 and compared[0][0] == compared[0][1] and len(compared[0][0]) == 32


LOOP: dict = {}
LOOP["a"] = [LOOP, LOOP]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"a": float("nan")}, "not a JSON object with finite numbers"),
        ({"a": [float("inf")]}, "not a JSON object with finite numbers"),
        ({"a": {1, 2}}, "not a JSON object with finite numbers"),
        ({"a": "x" * 200}, "the message has 208 bytes; the limit is 200"),
        (LOOP, "Circular reference"),
    ],
    ids=["nan", "infinity", "set", "large", "loop"],
)
def test_unsendable_value_raises_and_uses_no_counter(values, told):
    out, into = ends(max_bytes=200)
    with pytest.raises(ValueError, match=told):
        out.pack(values)
    assert opened(into, out.pack({"n": 1})) == {"n": 1}


def test_keys_differ_by_token_and_by_nonce():
    first, second = b"1" * 32, b"2" * 32
    keys = [session_key(t, *n) for t in (TOKEN, "cd" * 32) for n in ((), (first,), (first, second), (second, first))]
    assert len(set(keys)) == 8


def test_a_short_token_is_refused():
    with pytest.raises(
        ConfigError, match="the token has 6 characters; use the token of the run, 32 characters or more"
    ):
        session_key("secret")


def test_the_file_of_a_token_is_for_this_user_alone(tmp_path):
    path, elsewhere, before = tmp_path / "token", tmp_path / "elsewhere", os.umask(0)
    (tmp_path / ".token.tmp").symlink_to(elsewhere)
    try:
        save_token(path, TOKEN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and not elsewhere.exists()
    assert find_token({"PARAGAN_TOKEN_FILE": str(path)}) == TOKEN
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="token: other users can read this token \\(its mode is 0640\\)"):
        find_token({"PARAGAN_TOKEN_FILE": str(path)})


def test_a_token_is_found_or_missed_in_one_line(tmp_path):
    assert find_token({"PARAGAN_TOKEN": TOKEN, "PARAGAN_TOKEN_FILE": "nowhere"}) == TOKEN
    with pytest.raises(ConfigError, match="PARAGAN_TOKEN or PARAGAN_TOKEN_FILE is required"):
        find_token({"PARAGAN_TOKEN": ""})
    with pytest.raises(ConfigError, match="No such file"):
        find_token({"PARAGAN_TOKEN_FILE": str(tmp_path / "none")})
    (tmp_path / "odd").write_bytes(b"\xff")
    (tmp_path / "odd").chmod(0o600)
    with pytest.raises(ConfigError, match="not ASCII"):
        find_token({"PARAGAN_TOKEN_FILE": str(tmp_path / "odd")})


def test_two_tokens_are_two():
    assert new_token() != new_token() and len(new_token()) == 64
    assert not any(hasattr(module, "pickle") for module in (control, signed_frames))
