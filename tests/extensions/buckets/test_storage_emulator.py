"""The emulator of remote storage that tests and benchmarks read from: faults are as set, and follow the seed."""

import http.client
import urllib.error
import urllib.request

import pytest

from benchmarks.storage_emulator import Conditions, read_files, serve
from benchmarks.storage_emulator.conditions import FAULTS

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    return tmp_path


def get(url, headers=None, timeout=20.0):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=timeout) as response:
        return response.status, response.read()


@pytest.mark.parametrize("fault", FAULTS)
def test_emulator_makes_each_fault(folder, fault):
    with serve(Conditions(**{fault: 1.0}), read_files(folder)) as server:
        url = f"{server.url}/a.bin"
        if fault == "cut":
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                get(url)
        elif fault == "truncated":
            assert len(get(url)[1]) < len(CONTENT)
        elif fault == "wrong_bytes":
            found = get(url)[1]
            assert sum(one != other for one, other in zip(found, CONTENT, strict=True)) == 1
        elif fault == "unavailable":
            with pytest.raises(urllib.error.HTTPError, match="503"):
                get(url)
        else:
            with pytest.raises(TimeoutError):
                get(url, timeout=0.3)
        assert server.counts[fault] == 1
