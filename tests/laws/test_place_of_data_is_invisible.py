"""Where the data is, is invisible: disk, http and S3, read ahead or not, cached or not, give the same weights."""

import pytest

from benchmarks.storage_emulator import Conditions
from benchmarks.storage_emulator.conditions import FAULTS
from tests import tiny_run
from tests.prepared_shards import image_folder, prepared
from tests.remote_storage import remote_folder, skip_without_s3
from tests.tiny_run import newest

FAULTY = Conditions(latency_ms=5, sigma=0.7, cut=0.05, truncated=0.05, unavailable=0.05, wrong_bytes=0.01)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    prepared(image_folder(root / "images", 40), root / "out", samples_per_shard=9)
    with remote_folder(root / "out") as found:
        found.urls["disk"] = str(root / "out")
        for server in found.servers.values():
            server.conditions = FAULTY
        yield found


def weights(folder, path, *words):
    """Every tensor of the checkpoint after twelve steps, which are more than two epochs."""
    settings = ("data.name=shards", f"data.path={path}", "data.flip=true", "train.batch=8", "train.kimg=0.096")
    trainer = tiny_run.train(folder, *settings, *words, recipe="own")
    trainer.batches.close()
    return {path.name: path.read_bytes() for path in newest(folder).rglob("*.safetensors")}


@pytest.fixture(scope="module")
def from_disk(served, tmp_path_factory):
    return weights(tmp_path_factory.mktemp("disk"), served.urls["disk"], "loading.prefetch=0")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("disk", ("loading.prefetch=5", "loading.threads=3")),
        ("http", ("loading.prefetch=0", "data.disk_cache_mb=0")),
        ("http", ("loading.prefetch=7", "loading.threads=4")),
        ("s3", ("loading.prefetch=3", "loading.threads=2", "data.disk_cache_mb=0")),
    ],
)
def test_weights_do_not_depend_on_the_place_of_the_data(served, from_disk, tmp_path, monkeypatch, place, words):
    skip_without_s3(place)
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    assert from_disk
    assert weights(tmp_path / "run", served.urls[place], *words) == from_disk
    if "data.disk_cache_mb=0" in words:
        assert any(served.servers[place].counts[fault] for fault in FAULTS)
