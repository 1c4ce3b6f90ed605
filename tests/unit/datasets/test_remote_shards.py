"""Shards over http and S3: the samples of the disk under every fault, or a clear stop; messages; `data check URL`."""

import dataclasses
import hashlib
import json
import os
import shutil
import sys

import numpy as np
import pytest

from benchmarks.storage_emulator import QUIET, Conditions, read_files, serve
from benchmarks.storage_emulator.conditions import FAULTS
from benchmarks.storage_emulator.upstream import Response
from paragan.cli.main import main
from paragan.datasets import _image_source, shards
from paragan.storage import bucket, remote_store
from paragan.storage.shard_folder import ShardFolder
from tests.data_refusals import refusal
from tests.prepared_shards import flip_bit, image_folder, prepared
from tests.remote_storage import remote_folder, skip_without_s3

COUNT = 120
SCHEMES = ("http", "s3")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("remote")
    prepared(image_folder(root / "images", COUNT, side=40), root / "out", samples_per_shard=25)
    return root / "out"


@pytest.fixture(scope="module")
def served(local):
    with remote_folder(local) as found:
        yield found


@pytest.fixture(params=SCHEMES)
def scheme(request):
    skip_without_s3(request.param)
    return request.param


@pytest.fixture
def remote(served, scheme):
    """The URL and the proxy of one scheme, quiet before and after."""
    server = served.servers[scheme]
    server.conditions = QUIET
    server.restart()
    yield served.urls[scheme], server
    server.conditions = QUIET


@pytest.fixture(autouse=True)
def _cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_image_source, "CACHE_BYTES", 0)


def epoch(path, **options):
    """The hash of all samples, in an order as the loader's, and the number of each."""
    source = shards.source(shards.Options(path=str(path), size=8, **options), "train")
    rows = np.random.default_rng(3).permutation(len(source))
    digest = hashlib.sha256()
    for start in range(0, len(rows), 16):
        batch = source.fetch(rows[start : start + 16])
        digest.update(batch["image"].numpy().tobytes() + batch["label"].numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("disk_cache_mb", [0, pytest.param(64, marks=pytest.mark.slow)])
def test_epoch_under_each_fault_is_that_of_the_disk(local, remote, fault, disk_cache_mb, monkeypatch):
    url, server = remote
    if fault == "silent":
        monkeypatch.setattr(remote_store, "_TIMEOUT_S", 0.6)
    monkeypatch.setattr(bucket, "_FIRST_PAUSE_S", 0.01)
    share = {"wrong_bytes": 0.02, "silent": 0.03}.get(fault, 0.1)
    server.conditions = Conditions(latency_ms=2, sigma=0.7, **{fault: share})
    expected = epoch(local)
    while not server.counts[fault]:  # a warm cache needs no request
        assert epoch(url, disk_cache_mb=disk_cache_mb) == expected
        assert server.counts["requests"] < 2000
    if disk_cache_mb:
        requests = server.counts["requests"]
        assert epoch(url, disk_cache_mb=disk_cache_mb) == expected
        assert server.counts["requests"] - requests <= 20  # dataset.json


def test_a_sample_that_is_always_wrong_stops_with_its_name(local, remote):
    url, server = remote
    folder = ShardFolder(url)
    server.conditions = Conditions(wrong_bytes=1.0)
    place = f"{url}/shard-000001.tar: sample 000000031"
    message = refusal(lambda: folder.read(31))
    assert message.startswith(f"{place}: the bytes differ from the sha256 in the index")
    assert server.counts["wrong_bytes"] == 2  # read again once


def test_a_wrong_block_in_the_cache_is_replaced(local, remote, tmp_path):
    url, server = remote
    expected = ShardFolder(local).read_rows(range(COUNT))
    assert ShardFolder(url, 1 << 30).read_rows(range(COUNT)) == expected
    requests = server.counts["requests"]
    assert ShardFolder(url, 1 << 30).read_rows(range(COUNT)) == expected
    assert server.counts["requests"] == requests + 2  # dataset.json; the rest is in the cache
    for block in (tmp_path / "cache").rglob("*.block"):
        flip_bit(block, 2000)
        assert ShardFolder(url, 1 << 30).read_rows(range(COUNT)) == expected
    for index in (tmp_path / "cache").rglob("index.bin"):
        flip_bit(index, 9)
    assert (ShardFolder(url, 1 << 30).index == ShardFolder(local).index).all()


def test_remote_shards_that_are_missing_are_named(remote):
    url, _ = remote
    assert refusal(lambda: ShardFolder(f"{url}/none")) == (
        f"{url}/none: no dataset.json; upload the folder that `paragan data prepare SRC OUT` writes"
    )


HOSTILE_HASHES = ["{target}", "../../../victim", "", "0" * 63, "A" * 64, "0" * 64 + "\n", "é" * 64]


@pytest.mark.parametrize("where", ["index", "shards"])
@pytest.mark.parametrize(
    ("key", "text"), [*(("sha256", text) for text in HOSTILE_HASHES), ("name", "../index.bin"), ("name", "{target}")]
)
def test_a_name_or_hash_of_a_foreign_description_becomes_no_path(local, tmp_path, where, key, text):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "index.bin").write_text("local")
    (victim / "000000.block").write_text("local")
    foreign = shutil.copytree(local, tmp_path / "foreign")
    description = json.loads((foreign / "dataset.json").read_text())
    entry = description["index"] if where == "index" else description["shards"][0]
    entry[key] = text.format(target=victim)
    (foreign / "dataset.json").write_text(json.dumps(description))
    with serve(QUIET, read_files(foreign)) as server:
        message = refusal(lambda: epoch(server.url, disk_cache_mb=64))
    assert message.startswith(f"{server.url}/dataset.json: {where}") and key in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign", "victim"]
    assert [path.read_text() for path in victim.iterdir()] == ["local", "local"]


def test_an_index_of_another_size_is_refused_before_it_is_fetched(local, tmp_path):
    foreign = shutil.copytree(local, tmp_path / "foreign")
    description = json.loads((foreign / "dataset.json").read_text())
    description["index"]["num_bytes"] = 1 << 45
    (foreign / "dataset.json").write_text(json.dumps(description))
    with serve(QUIET, read_files(foreign)) as server:
        assert "index.bin: 35,184,372,088,832 bytes, expected 5,760" in refusal(lambda: ShardFolder(server.url))
        assert server.counts["requests"] <= 2  # its size and its bytes


async def without_ranges(request, folder):
    return await read_files(folder)(dataclasses.replace(request, headers={}))


async def forbidden(request, folder):
    return Response(403)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (without_ranges, "index.bin: the server ignores byte ranges; use one that supports them, such as nginx"),
        (forbidden, "dataset.json: access denied; use a server that needs no login"),
    ],
)
def test_web_servers_that_cannot_be_read_are_refused_with_what_to_use(local, answer, message):
    with serve(QUIET, lambda request: answer(request, local)) as server:
        assert refusal(lambda: ShardFolder(server.url)) == f"{server.url}/{message}"


def test_check_of_an_address_reads_all_and_ends_with_the_command(remote, capsys):
    url, _ = remote
    assert main(["data", "check", url, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["images"], report["damaged"], report["classes"]) == (COUNT, [], {"cats": 60, "dogs": 60})
    assert report["command"] == f"paragan train own data.name=shards data.path={url} data.size=40"


@pytest.mark.parametrize("address", ["https://me:hunter2@host/x", "s3://bucket/x?X-Amz-Signature=hunter2"])
def test_secrets_in_an_address_are_refused_and_not_repeated(address, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (["train", "own", "data.name=shards", f"data.path={address}"], ["data", "check", address]):
        assert main(command) == 2
        printed = "".join(capsys.readouterr())
        assert "path must not contain a user, password or query" in printed
        assert "hunter2" not in printed
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_other_data_sets_refuse_an_address(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "own", "data.path=https://host/x"]) == 2
    message = "data.path: data set 'folder' reads local files; pass data.name=shards for shards at an address"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_addresses_without_obstore_name_the_extra(scheme, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    need = f"{scheme}://bucket/x: remote files need the package obstore"
    assert (
        refusal(lambda: ShardFolder(f"{scheme}://bucket/x")) == f"{need}; install it with: pip install 'paragan[cloud]'"
    )


@pytest.mark.parametrize("scheme", ["gs", "az", "s3"])
def test_missing_credentials_are_named(scheme, monkeypatch):
    skip_without_s3("s3")
    for name in os.environ:
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    variable = {"gs": "GOOGLE_APPLICATION_CREDENTIALS", "az": "AZURE_STORAGE_ACCOUNT_NAME", "s3": "AWS_ACCESS_KEY_ID"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing listens there
    if scheme == "s3":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "half")
    assert f"set {variable[scheme]}" in refusal(lambda: ShardFolder(f"{scheme}://bucket/x"))


def test_azure_is_read_like_the_disk(local, tmp_path, monkeypatch):
    """The range server answers like Azure's, as far as reading needs; it checks no signature."""
    skip_without_s3("s3")
    (tmp_path / "devstoreaccount1").mkdir()
    (tmp_path / "devstoreaccount1" / "box").symlink_to(local)
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    with serve(QUIET, read_files(tmp_path)) as server:
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", server.url)
        assert ShardFolder("az://box").read_rows(range(COUNT)) == ShardFolder(local).read_rows(range(COUNT))


def test_a_forked_process_is_refused_instead_of_waiting_forever(served):
    skip_without_s3("s3")
    ShardFolder(served.urls["s3"])
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            ShardFolder(served.urls["s3"])
        except Exception as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert b"cannot be read in a forked process; start processes with the method 'spawn'" in os.read(reader, 1000)
