"""`read_json_file`: whatever is in the place of a JSON file is an `OSError` or a `ValueError`."""

import os

import pytest

from paragan.core.files import read_json_file
from paragan.runs.environment import read_environment
from paragan.runs.folder import RunFolder

DEEP = b"[" * 100_000
OTHER = [
    b"",
    b"{",
    b"[]",
    b"3",
    b"null",
    b"\xff",
    DEEP,
    b'{"a":' * 100_000,
    b"9" * 5000,
    b'{"a": ' + b"9" * 5000 + b"}",
]


@pytest.mark.parametrize("content", OTHER, ids=range(len(OTHER)))
def test_other_content_is_a_value_error(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=r".") as caught:
        read_json_file(tmp_path / "a.json", dict)
    assert not isinstance(caught.value, RecursionError)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "large"])
def test_what_is_no_file_or_too_large_is_an_os_error(tmp_path, kind):
    path = tmp_path / "a.json"
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda place: place.symlink_to("/dev/zero")}
    make.get(kind, lambda place: place.write_bytes(b"{}" + b" " * 99))(path)
    with pytest.raises(OSError, match=r"."):
        read_json_file(path, dict, 100)


def test_value_of_the_type_is_returned(tmp_path):
    for kind, text in ((dict, '{"a": 1}'), (list, "[1]")):
        (tmp_path / "a.json").write_text(text)
        assert isinstance(read_json_file(tmp_path / "a.json", kind), kind)


@pytest.mark.parametrize("content", [DEEP, b'{"code":' * 100_000, b"[]"])
def test_status_and_environment_of_a_run_that_are_no_objects_count_as_missing(tmp_path, content):
    for name in ("exit.json", "environment.json"):
        (tmp_path / name).write_bytes(content)
    assert not RunFolder(tmp_path).is_finished()
    assert read_environment(tmp_path) == {}
