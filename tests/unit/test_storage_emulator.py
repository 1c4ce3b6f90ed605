"""The emulator of remote storage that tests and benchmarks read from: faults are as set, and follow the seed."""

from __future__ import annotations

import http.client
import statistics
import urllib.error
import urllib.request

import pytest

from benchmarks.storage_emulator import QUIET, Conditions, forward, read_files, serve
from benchmarks.storage_emulator.conditions import FAULTS

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    return tmp_path


def get(url, headers=None, timeout=20.0):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=timeout) as response:
        return response.status, response.read()


@pytest.mark.parametrize("is_forwarded", [False, True])
def test_emulator_quiet_serves_whole_files_and_ranges(folder, is_forwarded):
    with serve(QUIET, read_files(folder)) as files, serve(QUIET, forward(files.url)) as proxy:
        url = proxy.url if is_forwarded else files.url
        assert get(f"{url}/a.bin") == (200, CONTENT)
        assert get(f"{url}/a.bin", {"Range": "bytes=5-9"}) == (206, CONTENT[5:10])
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{url}/../secret")


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


def test_conditions_follow_the_seed_and_not_the_order_of_requests():
    conditions = Conditions(latency_ms=10, sigma=0.5, cut=0.1, unavailable=0.1)
    requests = [f"GET /{number}" for number in range(400)]

    def drawn(seed, order):
        return {request: conditions.treatment(seed, request, 0, 0.0) for request in order}

    one = drawn(1, requests)
    assert one == drawn(1, requests[::-1])
    assert one != drawn(2, requests)
    assert 8 < statistics.median(each.latency_s for each in one.values()) * 1000 < 12
    assert 50 < sum(each.fault is not None for each in one.values()) < 110


def test_bursts_multiply_the_latency_at_the_end_of_each_period():
    conditions = Conditions(latency_ms=10, burst_factor=10)
    latencies = [conditions.treatment(0, "GET /", 0, second).latency_s for second in range(40)]
    assert [round(latency, 3) for latency in latencies] == ([0.01] * 15 + [0.1] * 5) * 2
