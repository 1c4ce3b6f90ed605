"""Buckets: tries, conditions, truncated responses; leases: one writer at a time."""

import threading

import pytest
from obstore.exceptions import NotFoundError

from paragan.core.errors import CheckpointError, DataError, StorageError
from paragan.extensions.buckets.lease import LEASE, Lease
from paragan.storage.bucket import ConflictError, open_bucket
from paragan.storage.byte_store import MissingFileError
from tests.memory_bucket import failing, truncating

QUICK_S = 0.6  # until a lease expires


@pytest.fixture
def lease(bucket):
    made = []

    def make():
        made.append(Lease(bucket.open(), QUICK_S))
        return made[-1]

    yield make
    for one in made:
        one._ended.set()


def die(lease):
    """End the renewals, as a kill does."""
    lease._ended.set()
    lease._thread.join(10)


def test_put_after_transient_failures_succeeds(bucket):
    bucket.faults["put"] = failing(2)
    bucket.open().put("a", b"1")
    assert bucket.content("a") == b"1" and bucket.counts["put"] == 3


def test_store_without_response_fails_after_three_tries_with_code_75(bucket):
    bucket.faults["get"] = failing()
    with pytest.raises(StorageError, match="s3://bucket/run/a: status 503, after 3 tries; check the network") as error:
        bucket.open().read("a", 10)
    assert error.value.exit_code == 75 and bucket.counts["get"] == 3


def test_conditional_put_of_another_version_is_a_conflict(bucket):
    opened = bucket.open()
    version = opened.put("a", b"1", new=True)
    opened.put("a", b"2", version)
    for options in ({"condition": version}, {"new": True}):
        with pytest.raises(ConflictError):
            opened.put("a", b"3", **options)
    assert opened.read("a", 10)[0] == b"2"


def test_truncated_download_is_repeated_and_never_leaves_a_file(bucket, tmp_path):
    bucket.write("a", b"0123456789")
    bucket.faults["get"] = truncating(1)
    bucket.open().download("a", tmp_path / "a", 10)
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    bucket.faults["get"] = truncating()
    with pytest.raises(StorageError, match="5 of 10 bytes arrived"):
        bucket.open().download("a", tmp_path / "b", 10)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_missing_and_large_objects_are_refused(bucket, tmp_path):
    with pytest.raises(MissingFileError):
        bucket.open().read("a", 10)
    bucket.write("a", b"0123456789")
    with pytest.raises(DataError, match="more than 9 bytes"):
        bucket.open().read("a", 9)
    with pytest.raises(DataError, match="more than 9 bytes"):
        bucket.open().download("a", tmp_path / "a", 9)
    assert not list(tmp_path.iterdir())
    bucket.open().delete("missing")


@pytest.mark.parametrize("address", ["http://host/run", "ftp://x"])
def test_address_of_another_kind_is_refused(address):
    with pytest.raises(DataError, match="not an address of an object store; use one that begins with s3://"):
        open_bucket(address)


def test_address_with_a_secret_is_refused_without_repeating_it():
    with pytest.raises(DataError) as error:
        open_bucket("s3://user:pass@bucket/run")
    assert "pass@" not in str(error.value)


def test_lease_is_renewed_and_leaves_nothing(bucket, lease):
    held = lease()
    held.acquire(print)
    first = bucket.content(LEASE)
    assert wait_until(lambda: bucket.content(LEASE) != first)
    held.release()
    assert bucket.names() == []


def test_second_live_writer_is_refused(lease):
    held = lease()
    held.acquire(print)
    with pytest.raises(CheckpointError, match=r"run folder s3://bucket/run is in use by process \d+ on ") as error:
        lease().acquire(lambda line: None)
    assert error.value.exit_code == 2 and not held.is_lost


def test_lease_of_a_dead_writer_is_taken_over_and_the_dead_one_writes_nothing(bucket, lease):
    held, other = lease(), lease()
    held.acquire(print)
    die(held)
    said = []
    other.acquire(said.append)
    assert "waiting 0.6 s for a sign of life" in said[0]
    held._renew()  # it was suspended, and wakes up
    with pytest.raises(CheckpointError, match="in use by process"):
        held.check_lost()
    held.release()
    assert other.owner.encode() in bucket.content(LEASE)


def test_suspended_writer_writes_nothing_until_it_has_renewed_its_lease(lease):
    held = lease()
    held.acquire(print)
    die(held)
    held.check_lost()
    held._renewed_at -= 2 * QUICK_S
    with pytest.raises(StorageError, match=r"the lease was not renewed for 0.6 s; check"):
        held.check_lost()
    held._renew()
    held.check_lost()


def test_lease_of_a_process_known_dead_is_taken_over_at_once(lease):
    held = lease()
    held.acquire(print)
    die(held)
    said = []
    lease().acquire(said.append, former=held.owner)
    assert said == []


def test_lease_released_during_the_wait_is_acquired(lease):
    held, other = lease(), lease()
    held.acquire(print)
    other.acquire(lambda line: held.release())
    other.check_lost()
    assert not other.is_lost


def test_two_contenders_for_a_dead_lease_never_both_win(lease):
    dead = lease()
    dead.acquire(print)
    die(dead)
    won, refused = [], []

    def contend():
        one = lease()
        try:
            one.acquire(lambda line: None)
            won.append(one)
        except CheckpointError:
            refused.append(one)

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (len(won), len(refused)) == (1, 3)


def test_renewal_whose_response_was_lost_keeps_the_lease(bucket, lease):
    held = lease()
    held.acquire(print)
    die(held)
    lost = [True]

    def fault(name, call):
        found = call()
        if lost:
            lost.clear()
            raise TimeoutError  # not of the store: the test's way to lose a response
        return found

    bucket.faults["put"] = fault
    with pytest.raises(TimeoutError):
        held._renew()
    held._renew()
    held._renew()
    assert not held.is_lost and held.owner.encode() in bucket.content(LEASE)


def wait_until(condition, seconds=20.0):
    waiting = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        waiting.wait(0.02)
    return False


@pytest.mark.parametrize("is_s3", [True, False])
def test_lease_that_was_removed_is_taken_again(bucket, lease, is_s3):
    """By hand, or by a late request of a former holder. S3 answers a put that replaces nothing with 404."""
    held = lease()
    held.acquire(print)
    die(held)
    bucket.remove(LEASE)

    def fault(name, call):
        if held._version and LEASE not in bucket.names():
            raise NotFoundError("Object at location run/lease.json not found")
        return call()

    if is_s3:
        bucket.faults["put"] = fault
    held._renew()
    held._renew()
    held.check_lost()
    assert held.owner.encode() in bucket.content(LEASE)
