"""Remote ranges: joined, requested in parallel, repeated; blocks cached on the disk within a limit."""

import gc
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paragan.core.errors import StorageError
from paragan.storage.bucket import ObjectBucket
from paragan.storage.byte_store import ByteRange, StoredFile
from paragan.storage.disk_cache import DiskCache
from paragan.storage.remote_store import BLOCK_BYTES, RemoteStore
from tests.data_refusals import refusal
from tests.memory_bucket import ADDRESS, failing, truncating

CONTENT = os.urandom(5 * BLOCK_BYTES + 77)
FILE = StoredFile("a", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


class Requests(list):
    """Ranges that were requested of two equal files of a bucket. before: called at each, may wait."""

    def __init__(self, bucket, before=lambda: None):
        self.before = before
        bucket.write("a", CONTENT)
        bucket.write("b", CONTENT)
        real = ObjectBucket.read_range

        def read_range(opened, name, start, stop):
            self.append((name, start, stop))
            self.before()
            return real(opened, name, start, stop)

        self.replaced = read_range


@pytest.fixture
def requests(bucket, monkeypatch):
    requests = Requests(bucket)
    monkeypatch.setattr(ObjectBucket, "read_range", requests.replaced)
    return requests


@pytest.fixture
def store(bucket, requests):
    return RemoteStore(bucket.open(), DiskCache(0))


def content(wanted):
    return CONTENT[wanted.start : wanted.stop]


def spans(*pairs, name="a"):
    return [ByteRange(name, start, stop) for start, stop in pairs]


def test_neighbouring_ranges_are_one_request(store, requests):
    ranges = [*spans((70_100, 70_200), (10, 20), (10, 20), (300_000, 300_010), (15, 4000)), ByteRange("b", 5, 9)]
    assert store.read_ranges(ranges) == [content(wanted) for wanted in ranges]
    assert sorted(requests) == [("a", 10, 4000), ("a", 70_100, 70_200), ("a", 300_000, 300_010), ("b", 5, 9)]
    requests.clear()
    store.read_ranges(spans((0, 100), (65_636, 65_637)))
    assert requests == [("a", 0, 65_637)]
    requests.clear()
    store.read_ranges(spans((0, 100), (65_637, 65_638)))
    assert sorted(requests) == [("a", 0, 100), ("a", 65_637, 65_638)]


def test_joined_ranges_have_a_limit(store, requests, bucket):
    mib = 1 << 20
    large = bytes(20 * mib)
    bucket.write("large", large)
    ranges = spans(*[(n * mib, (n + 1) * mib) for n in range(20)], name="large")
    assert b"".join(store.read_ranges(ranges)) == large
    assert sorted((stop - start) // mib for _, start, stop in requests) == [4, 8, 8]


def test_requests_run_at_the_same_time(store, requests):
    barrier = threading.Barrier(8)
    requests.before = lambda: barrier.wait(5)
    ranges = spans(*[(n * 100_000, n * 100_000 + 10) for n in range(8)])
    assert store.read_ranges(ranges) == [content(wanted) for wanted in ranges]


def test_transient_failures_are_repeated_and_then_final(store, bucket):
    bucket.faults["get_range"] = failing(2)
    assert store.read_ranges(spans((3, 9))) == [CONTENT[3:9]]
    assert bucket.counts["get_range"] == 3
    bucket.faults["get_range"] = failing()
    with pytest.raises(StorageError, match=f"{ADDRESS}/a: status 503, after 3 tries; "):
        store.read_ranges(spans((3, 9)))


def test_short_responses_are_repeated(store, bucket):
    bucket.faults["get_range"] = truncating(2)
    wanted = spans((3, 9), (20, 30))  # one request; the response ends before the second range
    assert store.read_ranges(wanted) == [content(part) for part in wanted]
    assert bucket.counts["get_range"] == 3
    bucket.faults["get_range"] = truncating()
    assert f"{ADDRESS}/a: 13 of 27 bytes arrived, after 3 tries" in refusal(lambda: store.read_ranges(wanted))


def test_other_errors_are_not_repeated(store, bucket):
    def refuse(name, call):
        raise ValueError("status 403 Forbidden")

    bucket.faults["get_range"] = refuse
    assert "access denied; set AWS_ACCESS_KEY_ID" in refusal(lambda: store.read_ranges(spans((3, 9))))
    assert bucket.counts["get_range"] == 1


def test_no_thread_is_left_of_a_store_that_is_gone(bucket, requests):
    before = set(threading.enumerate())  # of other tests
    RemoteStore(bucket.open(), DiskCache(0)).read_ranges(spans((3, 9), (100_000, 100_009)))
    gc.collect()
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_description_that_differs_each_time_is_refused(store, bucket):
    def differing(name, call):
        bucket.write("dataset.json", os.urandom(9))
        return call()

    assert "more than 100 bytes" in refusal(lambda: store.read_file("a", 100))
    bucket.faults["get"] = differing
    assert "each response has other bytes" in refusal(lambda: store.read_file("dataset.json", 100))


def caching(bucket, limit_bytes, *files):
    opened = RemoteStore(bucket.open(), DiskCache(limit_bytes))
    opened.cache_blocks(files)
    return opened


def blocks(folder):
    return sorted(folder.rglob("*.block"))


def test_blocks_are_fetched_once(bucket, requests, cache_folder):
    cached = caching(bucket, 1 << 30, FILE)
    ranges = spans((10, 20), (BLOCK_BYTES - 5, BLOCK_BYTES + 5), (len(CONTENT) - 4, len(CONTENT)))
    for _ in range(2):
        assert cached.read_ranges(ranges) == [content(wanted) for wanted in ranges]
        assert len(requests) == 2  # the first two blocks, and the last
    assert len(blocks(cache_folder)) == 3
    elsewhere = caching(bucket, 1 << 30, FILE)  # another store with the same content
    assert elsewhere.read_ranges(ranges) == [content(wanted) for wanted in ranges]
    assert len(requests) == 2


def test_forgotten_blocks_are_fetched_again(bucket, requests, cache_folder):
    cached = caching(bucket, 1 << 30, FILE)
    cached.read_ranges(spans((10, 20)))
    (block,) = blocks(cache_folder)
    block.write_bytes(bytes(BLOCK_BYTES))
    assert cached.read_ranges(spans((10, 20))) == [bytes(10)]
    cached.forget(spans((10, 20)))
    assert cached.read_ranges(spans((10, 20))) == [CONTENT[10:20]]
    block.write_bytes(b"cut")
    assert cached.read_ranges(spans((10, 20))) == [CONTENT[10:20]]


def test_files_beyond_the_limit_are_read_by_exact_ranges(bucket, requests):
    second = StoredFile("b", len(CONTENT), "0" * 64)
    cached = caching(bucket, int(1.5 * len(CONTENT)), FILE, second)
    ranges = [ByteRange("a", 10, 20), ByteRange("b", 10, 20)]
    for _ in range(2):
        assert cached.read_ranges(ranges) == [CONTENT[10:20]] * 2
    assert sorted(requests) == [("a", 0, BLOCK_BYTES), ("b", 10, 20), ("b", 10, 20)]


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


def test_a_cache_that_is_not_writable_only_costs_requests(bucket, requests, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "file"))
    store = RemoteStore(bucket.open(), DiskCache(0))
    assert caching(bucket, 1 << 30, FILE).read_ranges(spans((10, 20))) == [CONTENT[10:20]]
    assert "set PARAGAN_CACHE to a folder that is" in refusal(lambda: store.local_copy(FILE))


def test_copies_of_files_are_compared_with_their_hash(store, requests, cache_folder):
    path = store.local_copy(FILE)
    assert path.read_bytes() == CONTENT
    assert store.local_copy(FILE) == path
    assert len(requests) == 1
    path.write_bytes(CONTENT[:-1] + b"!")
    assert store.local_copy(FILE).read_bytes() == CONTENT
    wrong = StoredFile("a", len(CONTENT), "0" * 64)
    message = f"{ADDRESS}/a: the bytes differ from the sha256 in dataset.json; upload the file again"
    assert refusal(lambda: store.local_copy(wrong)) == message
    assert list(Path(cache_folder).rglob("a")) == [path]
