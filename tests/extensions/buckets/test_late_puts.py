"""Puts of a dead writer that a proxy holds back and delivers later: they replace nothing that followed them."""

import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from paragan.core.errors import StorageError
from paragan.extensions.buckets import mirrored_files
from paragan.extensions.buckets.mirrored_files import MirroredFiles


class KilledError(OSError):
    """The machine stops in a request."""


@pytest.fixture
def writer(bucket, tmp_path):
    """Makes the files of a new, empty machine, restored from the bucket."""
    machines = []

    def start():
        folder = tmp_path / str(len(machines))
        folder.mkdir()
        machines.append(folder)
        files = MirroredFiles(bucket=bucket.open(), folder=folder)
        files.mark_uploaded(files.download())
        return files

    return start


def hold(bucket, files, name, content):
    """Upload a change of a file, which a proxy holds back while the machine is killed; return the held request."""
    held = []

    def fault(put, call):
        if put == name:
            held.append(call)
            raise KilledError
        return call()

    (files.folder / name).parent.mkdir(exist_ok=True)
    (files.folder / name).write_bytes(content)
    bucket.faults["put"] = fault
    with pytest.raises(KilledError):
        files.upload()
    bucket.faults.clear()
    return held[0]


def deliver(request):
    """The held request arrives at the store, which refuses it."""
    with pytest.raises((AlreadyExistsError, PreconditionError)):
        request()


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "samples/step-000000001.png", "exit.json"])
@pytest.mark.parametrize("before", [b"1\n", None], ids=["known", "first"])
def test_late_put_of_a_dead_writer_replaces_no_newer_file(bucket, writer, name, before):
    dead = writer()
    if before is not None:
        (dead.folder / name).parent.mkdir(exist_ok=True)
        (dead.folder / name).write_bytes(before)
        dead.upload()
    request = hold(bucket, dead, name, b"1\n2\n")
    successor = writer()
    for content in (b"1\n2\n3\n", b"1\n2\n3\n4\n"):
        (successor.folder / name).parent.mkdir(exist_ok=True)
        (successor.folder / name).write_bytes(content)
        successor.upload()
    deliver(request)
    assert bucket.content(name) == b"1\n2\n3\n4\n"


def test_late_put_of_an_exit_status_that_was_removed_does_not_come_back(bucket, writer):
    dead = writer()
    (dead.folder / "exit.json").write_bytes(b"{}")
    dead.upload()
    request = hold(bucket, dead, "exit.json", b'{"code": 0}')
    successor = writer()
    (successor.folder / "exit.json").unlink()
    successor.upload()
    deliver(request)
    assert bucket.names() == []


def test_put_whose_response_was_lost_is_repeated(bucket, writer):
    files = writer()
    lost = []

    def fault(name, call):
        version = call()
        if lost:
            lost.clear()
            raise TimeoutError  # neither of the store nor retried: the next upload has to cope
        return version

    bucket.faults["put"] = fault
    for content in (b"1\n", b"1\n2\n"):
        (files.folder / "metrics.jsonl").write_bytes(content)
        lost.append(True)
        with pytest.raises(TimeoutError):
            files.upload()
        files.upload()
        assert bucket.content("metrics.jsonl") == content


def test_object_that_a_user_removes_under_a_live_run_is_stored_again(bucket, writer):
    files = writer()
    for content in (b"1\n", b"1\n2\n"):
        (files.folder / "metrics.jsonl").write_bytes(content)
        files.upload()
        assert bucket.content("metrics.jsonl") == content
        bucket.remove("metrics.jsonl")


def test_object_that_others_replace_again_and_again_is_said(bucket, writer):
    files = writer()

    def fault(name, call):
        bucket.write(name, b"of others")
        return call()

    (files.folder / "metrics.jsonl").write_bytes(b"1\n")
    bucket.faults["put"] = fault
    with pytest.raises(StorageError, match=r"metrics\.jsonl: replaced by others during 3 tries; check that nothing"):
        files.upload()


def test_lease_is_checked_before_each_try_of_a_put(bucket, writer):
    files = writer()
    bucket.write("metrics.jsonl", b"of the successor")
    (files.folder / "metrics.jsonl").write_bytes(b"1\n")
    checks = iter([None, StorageError("the lease was not renewed")])

    def check_lease():
        if error := next(checks):
            raise error

    files.check_lease = check_lease
    with pytest.raises(StorageError, match="not renewed"):
        files.upload()
    assert bucket.content("metrics.jsonl") == b"of the successor"


def test_record_that_is_too_large_for_one_put_is_sent_in_parts(bucket, writer, monkeypatch):
    monkeypatch.setattr(mirrored_files, "_MAX_SINGLE_BYTES", 3)
    files = writer()
    for content in (b"1\n", b"1\n2\n", b"1\n2\n3\n"):
        (files.folder / "metrics.jsonl").write_bytes(content)
        files.upload()
        assert bucket.content("metrics.jsonl") == content
