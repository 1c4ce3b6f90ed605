"""Remote ranges: joined, requested in parallel, repeated, hedged; blocks cached on the disk within a limit."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paragan.core.errors import DataError
from paragan.storage.block_store import BLOCK_BYTES, BlockStore
from paragan.storage.byte_store import ByteRange, StoredFile
from paragan.storage.disk_cache import DiskCache
from paragan.storage.remote_store import RemoteStore, join_ranges
from paragan.storage.request_client import RequestClient, TransientError
from paragan.storage.transfers import Transfers
from tests.data_refusals import refusal

CONTENT = os.urandom(5 * BLOCK_BYTES + 77)
FILE = StoredFile("a", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


class Client(RequestClient):
    """Two equal files in memory. before: called with the number of a request, may wait or raise."""

    address = "http://host/data"

    def __init__(self, before=lambda number: None):
        self.before = before
        self.requests = []

    def get(self, name, start, stop):
        self.requests.append((name, start, stop))
        self.before(len(self.requests))
        return CONTENT[start:stop]

    def get_file(self, name, max_bytes):
        return CONTENT

    def size(self, name):
        return len(CONTENT)


def remote(client, limit=0, **options):
    return RemoteStore(client, DiskCache(limit), Transfers(**{"timeout_s": 5.0, **options}))


def content(wanted):
    return CONTENT[wanted.start : wanted.stop]


def spans(*pairs, name="a"):
    return [ByteRange(name, start, stop) for start, stop in pairs]


def test_neighbouring_ranges_are_one_request():
    client = Client()
    ranges = [*spans((70_100, 70_200), (10, 20), (10, 20), (300_000, 300_010), (15, 4000)), ByteRange("b", 5, 9)]
    assert remote(client).read_ranges(ranges) == [content(each) for each in ranges]
    assert sorted(client.requests) == [("a", 10, 4000), ("a", 70_100, 70_200), ("a", 300_000, 300_010), ("b", 5, 9)]
    assert join_ranges(spans((0, 100), (65_636, 65_637))) == spans((0, 65_637))
    assert join_ranges(spans((0, 100), (65_637, 65_638))) == spans((0, 100), (65_637, 65_638))


def test_joined_ranges_have_a_limit():
    mib = 1 << 20
    joined = join_ranges(spans(*[(n * mib, (n + 1) * mib) for n in range(20)]))
    assert [each.num_bytes // mib for each in joined] == [8, 8, 4]


def test_requests_run_at_the_same_time():
    barrier = threading.Barrier(8)
    client = Client(lambda number: barrier.wait(5) and None)
    ranges = spans(*[(n * 100_000, n * 100_000 + 10) for n in range(8)])
    assert remote(client).read_ranges(ranges) == [content(each) for each in ranges]


def test_transient_failures_are_repeated_and_then_final():
    def fail_twice(number):
        if number < 3:
            raise TransientError("status 503")

    store = remote(Client(fail_twice))
    assert store.read_ranges(spans((3, 9))) == [CONTENT[3:9]]
    assert (store.transfers.counts.sent, store.transfers.counts.repeated) == (3, 2)

    def fail(number):
        raise TransientError("status 503")

    message = refusal(lambda: remote(Client(fail), num_tries=3).read_ranges(spans((3, 9))))
    assert message == (
        "http://host/data/a: status 503, after 3 tries; check the network and the server, then run the command again"
    )


def test_short_responses_are_repeated():
    message = refusal(lambda: remote(Client(), num_tries=2).read_ranges(spans((len(CONTENT) - 5, len(CONTENT) + 5))))
    assert "http://host/data/a: 5 of 10 bytes arrived, after 2 tries" in message


def test_other_errors_are_not_repeated():
    def refuse(number):
        raise DataError("access denied")

    client = Client(refuse)
    assert refusal(lambda: remote(client).read_ranges(spans((3, 9)))) == "access denied"
    assert len(client.requests) == 1


def test_a_request_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr("paragan.storage.transfers._MAX_PAUSE_S", 0.1)
    ended = threading.Event()
    message = refusal(lambda: remote(Client(lambda n: ended.wait(20)), timeout_s=0.2).read_ranges(spans((3, 9))))
    ended.set()
    assert "no response within 0.2 s" in message


def test_a_slow_request_is_hedged_once_and_the_first_response_counts():
    ended = threading.Event()
    slow = {40: 10.0}
    store = remote(Client(lambda number: ended.wait(slow.get(number, 0.001)) and None))
    for _ in range(60):
        began = time.monotonic()
        assert store.read_ranges(spans((3, 9))) == [CONTENT[3:9]]
        assert time.monotonic() - began < 5
    ended.set()
    assert 1 <= store.transfers.counts.hedged <= 16  # 10 at the start, then a tenth of the requests


def test_hedges_are_a_tenth_of_the_requests_if_all_become_slow():
    seconds = [0.0]
    store = remote(Client(lambda number: time.sleep(seconds[0])))
    wanted = spans(*[(n * 100_000, n * 100_000 + 10) for n in range(10)])
    for _ in range(5):
        store.read_ranges(wanted)
    for slower in (0.03, 0.06, 0.12, 0.24):
        seconds[0] = slower
        store.read_ranges(wanted)
    assert store.transfers.counts.hedged <= 10 + 9


def test_no_thread_is_left_when_idle(monkeypatch):
    monkeypatch.setattr("paragan.storage.request_pool._IDLE_S", 0.05)
    before = set(threading.enumerate())  # of other tests
    remote(Client()).read_ranges(spans((3, 9), (100_000, 100_009)))
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_description_that_differs_each_time_is_refused():
    client = Client()
    client.get_file = lambda name, most: os.urandom(9)
    assert "each response has other bytes" in refusal(lambda: remote(client).read_file("dataset.json", 100))
    assert "more than 100 bytes" in refusal(lambda: remote(Client()).read_file("dataset.json", 100))


def blocks(folder):
    return sorted(folder.rglob("*.block"))


def test_blocks_are_fetched_once_and_shared_by_threads(cache_folder):
    client = Client(lambda number: time.sleep(0.02))
    store = BlockStore(remote(client), DiskCache(1 << 30), [FILE])
    ranges = spans((10, 20), (BLOCK_BYTES - 5, BLOCK_BYTES + 5), (len(CONTENT) - 4, len(CONTENT)))
    threads = [threading.Thread(target=store.read_ranges, args=(ranges,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(client.requests) == 2  # the first two blocks, and the last
    assert store.read_ranges(ranges) == [content(each) for each in ranges]
    assert len(client.requests) == 2
    assert len(blocks(cache_folder)) == 3
    elsewhere = Client()  # another store with the same content
    assert BlockStore(remote(elsewhere), DiskCache(1 << 30), [FILE]).read_ranges(ranges)
    assert not elsewhere.requests


def test_forgotten_blocks_are_fetched_again(cache_folder):
    client = Client()
    store = BlockStore(remote(client), DiskCache(1 << 30), [FILE])
    store.read_ranges(spans((10, 20)))
    (block,) = blocks(cache_folder)
    block.write_bytes(bytes(BLOCK_BYTES))
    assert store.read_ranges(spans((10, 20))) == [bytes(10)]
    store.forget(spans((10, 20)))
    assert store.read_ranges(spans((10, 20))) == [CONTENT[10:20]]
    block.write_bytes(b"cut")
    assert store.read_ranges(spans((10, 20))) == [CONTENT[10:20]]


def test_files_beyond_the_limit_are_read_by_exact_ranges(cache_folder):
    client = Client()
    second = StoredFile("b", len(CONTENT), "0" * 64)
    store = BlockStore(remote(client), DiskCache(int(1.5 * len(CONTENT))), [FILE, second])
    ranges = [ByteRange("a", 10, 20), ByteRange("b", 10, 20)]
    for _ in range(2):
        assert store.read_ranges(ranges) == [CONTENT[10:20]] * 2
    assert sorted(client.requests) == [("a", 0, BLOCK_BYTES), ("b", 10, 20), ("b", 10, 20)]


def test_cache_stays_within_its_limit_and_removes_what_was_used_least_recently(cache_folder):
    limit = 64 * 1000
    cache = DiskCache(limit)
    for number in range(40):
        cache.write("ab" * 32, f"{number}.block", bytes(1000))
        os.utime(cache_folder / "ab" / ("ab" * 32) / f"{number}.block", (number, number))
    assert cache.read("ab" * 32, "3.block", 0, 10) == bytes(10)  # used now
    for number in range(40, 200):
        cache.write("cd" * 32, f"{number}.block", bytes(1000))
        assert sum(path.stat().st_size for path in blocks(cache_folder)) <= limit
    assert cache.read("ab" * 32, "4.block", 0, 10) is None
    names = {path.name for path in blocks(cache_folder)}
    assert "199.block" in names
    assert len(names) >= 48


def test_processes_share_a_cache_without_locks(cache_folder):
    code = (
        "import hashlib, sys; from paragan.storage.disk_cache import DiskCache\n"
        "cache = DiskCache(1 << 20)\n"
        "for n in range(300):\n"
        "    content = hashlib.sha256(b'%d' % (n % 90)).digest() * 400\n"
        "    found = cache.read('ab' * 32, f'{n % 90}.block', 0, len(content))\n"
        "    assert found in (None, content)\n"
        "    found or cache.write('ab' * 32, f'{n % 90}.block', content)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert sum(path.stat().st_size for path in blocks(cache_folder)) <= 1 << 20
    assert not list(cache_folder.rglob("*.tmp"))


def test_a_cache_that_is_not_writable_only_costs_requests(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "file"))
    store = BlockStore(remote(Client()), DiskCache(1 << 30), [FILE])
    assert store.read_ranges(spans((10, 20))) == [CONTENT[10:20]]
    assert "set PARAGAN_CACHE to a folder that is" in refusal(lambda: remote(Client()).local_copy(FILE))


def test_copies_of_files_are_compared_with_their_hash(cache_folder):
    client = Client()
    store = remote(client)
    path = store.local_copy(FILE)
    assert path.read_bytes() == CONTENT
    assert store.local_copy(FILE) == path
    assert len(client.requests) == 1
    path.write_bytes(CONTENT[:-1] + b"!")
    assert store.local_copy(FILE).read_bytes() == CONTENT
    wrong = StoredFile("a", len(CONTENT), "0" * 64)
    message = "http://host/data/a: the bytes differ from the sha256 in dataset.json; upload the file again"
    assert refusal(lambda: store.local_copy(wrong)) == message
    assert list(Path(cache_folder).rglob("a")) == [path]
