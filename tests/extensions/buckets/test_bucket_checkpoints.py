"""Checkpoints in buckets: committed by the manifest, verified both ways, never half a checkpoint."""

import json
from types import SimpleNamespace

import pytest
import torch

from paragan.checkpoint.manifest import NewerFormat
from paragan.checkpoint.reader import read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError, StorageError
from paragan.core.layout import Pieces
from paragan.extensions.buckets.bucket_checkpoints import BucketCheckpoints
from tests.memory_bucket import failing, lying

FILES = ("d.safetensors", "g.safetensors", "manifest.json", "state.json")


@pytest.fixture
def remote(bucket, tmp_path):
    """Two checkpoints in the bucket, of steps 1 and 2."""
    remote = BucketCheckpoints(bucket.open(), "checkpoints")
    writer = CheckpointWriter(folder=tmp_path / "local")
    for step in (1, 2):
        path = save(writer, step)
        remote.upload(path, path.name, lambda: None)
    return remote


def save(writer, step):
    groups = {"g": Pieces({"net/w": torch.full((300,), float(step))}), "d": Pieces({"net/w": torch.zeros(2)})}
    return writer.save(step, groups, {"position": step})


def newest(remote, folder, said=lambda line: None):
    return remote.download_newest(lambda name: folder / name, said)


def flip(bucket, name):
    content = bytearray(bucket.content(name))
    content[len(content) // 2] ^= 1
    bucket.write(name, bytes(content))


def halve(bucket, name):
    content = bucket.content(name)
    bucket.write(name, content[: len(content) // 2])


def test_uploaded_checkpoint_comes_back_with_the_same_bytes(remote, tmp_path):
    assert newest(remote, tmp_path / "copy") == ("step-000000002", [])
    for file in FILES:
        original = tmp_path / "local" / "step-000000002" / file
        assert (tmp_path / "copy" / "step-000000002" / file).read_bytes() == original.read_bytes()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [flip, halve, lambda bucket, name: bucket.remove(name)], ids=["flip", "cut", "gone"])
def test_damage_in_any_file_falls_back_to_the_checkpoint_before(remote, bucket, tmp_path, file, damage):
    damage(bucket, f"checkpoints/step-000000002/{file}")
    said = []
    found = newest(remote, tmp_path / "copy", said.append)
    is_absent = file == "manifest.json" and not any(name.endswith("2/manifest.json") for name in bucket.names())
    assert found == ("step-000000001", [] if is_absent else ["step-000000002"])
    assert is_absent or (len(said) == 1 and "s3://bucket/run/checkpoints/step-000000002" in said[0])
    assert is_absent or said[0].endswith("; trying the one before")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["step-000000001"]
    assert read_checkpoint(tmp_path / "copy" / "step-000000001").step == 1


def test_all_checkpoints_damaged_is_an_error(remote, bucket, tmp_path):
    for step in (1, 2):
        flip(bucket, f"checkpoints/step-00000000{step}/g.safetensors")
    with pytest.raises(CheckpointError, match="all checkpoints are damaged; give another --out DIR"):
        newest(remote, tmp_path / "copy")


def test_checkpoint_of_a_later_format_is_not_skipped(remote, bucket, tmp_path):
    name = "checkpoints/step-000000002/manifest.json"
    bucket.write(name, json.dumps({**json.loads(bucket.content(name)), "format": 2}).encode())
    with pytest.raises(NewerFormat):
        newest(remote, tmp_path / "copy")


def test_upload_of_a_damaged_folder_is_refused(remote, tmp_path):
    path = save(CheckpointWriter(folder=tmp_path / "local"), 3)
    (path / "g.safetensors").write_bytes((path / "g.safetensors").read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"g\.safetensors is missing or damaged"):
        remote.upload(path, path.name, lambda: None)
    assert remote.committed() == ["step-000000001", "step-000000002"]


@pytest.mark.parametrize("file", FILES)
def test_store_that_lies_about_a_file_gets_no_commit(remote, bucket, tmp_path, file):
    path = save(CheckpointWriter(folder=tmp_path / "local"), 3)
    bucket.faults["put"] = lying(lambda name: name.endswith(file))
    with pytest.raises(StorageError, match="check the store"):
        remote.upload(path, path.name, lambda: None)
    assert remote.committed() == ["step-000000001", "step-000000002"]


@pytest.mark.parametrize("file", FILES)
def test_upload_that_ends_at_any_file_leaves_no_checkpoint_and_can_be_repeated(remote, bucket, tmp_path, file):
    path = save(CheckpointWriter(folder=tmp_path / "local"), 3)
    bucket.faults["put"] = failing(3, lambda name: name.endswith(file))
    with pytest.raises(StorageError):
        remote.upload(path, path.name, lambda: None)
    assert remote.committed()[-1] == "step-000000002"
    remote.upload(path, path.name, lambda: None)
    assert newest(remote, tmp_path / "copy") == ("step-000000003", [])


def test_manifest_whose_response_was_lost_is_committed(remote, bucket, tmp_path):
    path = save(CheckpointWriter(folder=tmp_path / "local"), 3)
    lost = [True]

    def fault(name, call):
        found = call()
        if name.endswith("manifest.json") and lost:
            lost.clear()
            failing()(name, call)
        return found

    bucket.faults["put"] = fault
    remote.upload(path, path.name, lambda: None)
    assert remote.committed()[-1] == "step-000000003" and not lost


def test_commit_never_replaces_the_manifest_of_another_writer(remote, bucket, tmp_path):
    path = save(CheckpointWriter(folder=tmp_path / "local"), 3)
    name = "checkpoints/step-000000003/manifest.json"
    with pytest.raises(StorageError, match="not the manifest that was stored"):
        remote.upload(path, path.name, lambda: bucket.write(name, b"of another writer"))
    assert bucket.content(name) == b"of another writer"


def test_other_checkpoint_of_the_same_step_replaces_the_former_one(remote, tmp_path):
    other = CheckpointWriter(folder=tmp_path / "other")
    path = other.save(2, {"g": Pieces({"net/w": torch.ones(5)})}, {"position": 9})
    remote.upload(path, path.name, lambda: None)
    newest(remote, tmp_path / "copy")
    assert read_checkpoint(tmp_path / "copy" / "step-000000002").values == {"position": 9}


def test_prune_leaves_the_newest_and_removes_unfinished_ones_before_them(remote, bucket, tmp_path):
    bucket.write("checkpoints/step-000000000/g.safetensors", b"of a killed upload")
    bucket.write("checkpoints/step-000000009/g.safetensors", b"of an upload that has begun")
    remote.prune(1)
    kinds = {name.split("/")[1] for name in bucket.names()}
    assert kinds == {"step-000000002", "step-000000009"} and remote.committed() == ["step-000000002"]


def test_copy_with_the_same_bytes_is_not_downloaded_again(remote, bucket, tmp_path):
    newest(remote, tmp_path / "copy")
    bucket.faults["get"] = failing(when=lambda name: not name.endswith("manifest.json"))
    assert newest(remote, tmp_path / "copy") == ("step-000000002", [])


@pytest.mark.parametrize("file", FILES)
def test_file_larger_than_the_manifest_allows_is_refused_before_its_bytes_arrive(
    remote, bucket, tmp_path, file, monkeypatch
):
    """For a manifest itself: larger than its reader accepts."""
    monkeypatch.setattr("paragan.extensions.buckets.bucket_checkpoints.MAX_JSON_BYTES", 2000)
    monkeypatch.setattr("paragan.checkpoint.manifest.MAX_JSON_BYTES", 2000)
    name = f"checkpoints/step-000000002/{file}"
    bucket.write(name, bucket.content(name) + b" " * 8000)
    arrived = []

    def fault(name, call):
        found = call()
        arrived.append((name, found.meta["size"]))
        return SimpleNamespace(meta=found.meta, bytes=found.bytes, stream=lambda: stream(name, found))

    def stream(name, found):
        arrived.append((name, "bytes"))
        return found.stream()

    bucket.faults["get"] = fault
    said = []
    assert newest(remote, tmp_path / "copy", said.append) == ("step-000000001", ["step-000000002"])
    assert (name, "bytes") not in arrived and any(at == name for at, _ in arrived)
    assert len(said) == 1 and f"s3://bucket/run/{name}: more than " in said[0]
