"""Decoding in processes: the batches of threads, errors that name files, and processes that end."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from paragan.core import registry
from paragan.core.errors import ConfigError, DataError
from paragan.core.local_processes import is_running
from paragan.core.source import EncodedSource, TensorSpec
from paragan.loading import TensorBatches, open_images
from paragan.loading.decode_process import DecodeProcess, DecodeRequest, pickle_loader
from paragan.loading.loader import Loader
from paragan.storage.shard_folder import ShardFolder
from tests.decode_programs import HANGING, LOOP, OUTSIDE
from tests.prepared_shards import image_folder, prepared
from tests.processes import children, environment, kill, running, wait_for
from tests.unit.test_pipeline import no_thread_remains

__all__ = ["no_thread_remains"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Twenty-three images of two classes: in a folder, a .zip and a .tar file and in shards."""
    folder = tmp_path_factory.mktemp("images")
    images = image_folder(folder / "images")
    prepared(images, folder / "shards")
    shutil.make_archive(str(folder / "zipped"), "zip", images)
    with tarfile.open(folder / "packed.tar", "w") as file:
        file.add(images, "images")
    return folder


def images(path, **options):
    return open_images(path, size=8, held_out=0.05, **options)


def batches(source, decode="processes", batch=6, **limits):
    return TensorBatches(
        source,
        batch,
        seed=4,
        flip="image" in source.tensors,
        decode=decode,
        **{"decoders": 1, "timeout_s": 60.0} | limits,
    )


def copy_of(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 of this process


def workers():
    return [pid for pid in children(os.getpid()) if "decode_worker" in Path(f"/proc/{pid}/cmdline").read_text()]


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize(
    ("name", "limits", "options"),
    [
        ("images", {}, {}),
        ("images", {}, {"resize": "bicubic"}),
        pytest.param("shards", {"readers": 2, "depth": 7}, {}, marks=pytest.mark.slow),
    ],
    ids=["images", "bicubic", "shards"],
)
def test_batches_are_those_of_threads(root, name, limits, options):
    source = images(root / name, **options)
    source.fetch([0, 3, 5])  # cached here: the readers return no bytes of these rows
    with batches(source, "threads") as plain, batches(source, **limits) as ahead:
        found = [next(ahead) for _ in range(9)]
        for each in found:  # memory that is used again is not that of a batch
            assert_equal(each, next(plain))
        statistics = ahead.statistics()
        assert statistics.num_fetches >= 9 and statistics.bytes_held > 0
        ahead.load_state_dict(ahead.state_dict() | {"epoch": 0, "position": 6})
        plain.load_state_dict(ahead.state_dict())
        assert_equal(next(ahead), next(plain))
        assert len(workers()) == 1
    assert not workers()


@pytest.mark.parametrize("name", ["images", "zipped.zip", "packed.tar", "shards"])
def test_copy_of_a_source_returns_the_same_samples(root, name):
    source = images(root / name)
    expected = source.fetch(range(len(source)))
    copy = copy_of(source)
    assert_equal(copy.fetch(range(len(source))), expected)
    assert copy._num_cached == 0 < source._num_cached
    assert copy.fingerprint == source.fingerprint
    assert_equal(copy.decode([b""] * 4, range(4)), source.fetch(range(4)))  # cached where they were read


def test_killed_worker_is_an_error_and_the_next_batch_starts_another(root):
    source = images(root / "images")
    with batches(source, "threads") as plain, batches(source, depth=1) as ahead:
        assert_equal(next(ahead), next(plain))
        (first,) = workers()
        assert os.getsid(first) != os.getsid(0)  # Ctrl-C at the terminal
        kill(first, signal.SIGINT)
        assert_equal(next(ahead), next(plain))
        assert workers() == [first]
        kill(first)
        wait_for(lambda: not is_running(first))
        with pytest.raises(DataError, match="process that decodes was killed by signal 9; check the memory"):
            next(ahead)
        assert_equal(next(ahead), next(plain))
        assert workers() != [first]


def test_damaged_image_is_named_as_by_threads(tmp_path):
    folder = image_folder(tmp_path / "images", count=9)
    (folder / "cats" / "02.jpg").write_bytes(b"\xff\xd8\xff damaged")
    source = images(folder)
    errors = []
    for decode in ("threads", "processes"):
        with batches(source, decode, batch=len(source)) as found, pytest.raises(DataError) as error:
            next(found)
        errors.append(str(error.value))
    assert "cats/02.jpg: " in errors[0] and errors[0] == errors[1]


@pytest.mark.slow
def test_outside_source_and_its_failures(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OUTSIDE + f"\n\nPARENT = {os.getpid()}\n")
    module = registry.load_module("datasets", str(path))
    with batches(module.source(None, "train"), "threads", 1, depth=1) as plain:
        order = [int(next(plain)["number"]) for _ in range(100)]
    with batches(module.source(None, "train"), batch=1, depth=1, timeout_s=15.0) as ahead:
        positions = {row: order.index(row) for row in (7, 8, 20)}

        def fetch(row):
            ahead.load_state_dict(ahead.state_dict() | {"epoch": 0, "position": positions[row]})
            return next(ahead)

        found = fetch(20)
        assert found["number"].tolist() == [20] and found["half"].dtype == torch.bfloat16
        assert found["half"].unique().tolist() == [20]
        with pytest.raises(module.Worse, match="seven") as error:
            fetch(7)
        assert "In the process that decodes:" in error.value.__notes__[0] and "in fail" in error.value.__notes__[0]
        with pytest.raises(DataError, match="killed by signal 9"):
            fetch(8)
        assert fetch(20)["number"].tolist() == [20]


@pytest.mark.slow
def test_hanging_process_ends_with_its_time_out_or_with_the_stages(tmp_path):
    path = tmp_path / "hanging.py"
    path.write_text(OUTSIDE + f"\n\nPARENT = {os.getpid()}\n")
    source = registry.load_module("datasets", str(path)).source(None, "train")
    loader = pickle_loader(Loader(source, 1, 0, torch.device("cpu")))
    first = DecodeProcess(loader, source.tensors, 1, timeout_s=0.1)  # less than a start
    with pytest.raises(DataError, match=r"no answer within 0.1 s; .* increase train.timeout_s"):
        first.decode(request(20))
    assert not workers()
    process = DecodeProcess(loader, source.tensors, 1, timeout_s=60.0)
    assert process.decode(request(20))[0]["number"].tolist() == [20]
    ended = threading.Timer(0.2, process.end)
    ended.start()
    with pytest.raises(DataError, match="ended by `close`"):
        process.decode(request(9))
    ended.join()
    process.close()
    assert not workers()


def request(row):
    return DecodeRequest(None, np.array([row]), np.array([0]))


def test_source_that_cannot_be_pickled_is_refused():
    class Local(EncodedSource):
        fingerprint = "local"
        tensors = {"number": TensorSpec((), torch.int64)}  # noqa: RUF012

        def __len__(self):
            return 9

        def read(self, rows):
            return [b"1"] * len(rows)

        def decode(self, encoded, rows, places=None, seed=0):
            return {"number": torch.ones(len(rows), dtype=torch.int64)}

    source = Local()
    with batches(source) as found, pytest.raises(ConfigError, match=r"decode=processes: Local cannot .* in a module"):
        next(found)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loading")]


@pytest.mark.slow
def test_workers_end_with_a_killed_parent_and_leave_nothing(root, tmp_path):
    before = set(os.listdir("/dev/shm"))
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    (tmp_path / "torch.py").write_text("raise SystemExit('not the library')")
    (tmp_path / "hanging.py").write_text(HANGING)
    command = [sys.executable, "-P", str(script), str(root / "images"), str(tmp_path / "hanging.py")]
    options = {"env": environment(TMPDIR=str(tmp_path / "tmp")), "stdout": -1, "stderr": -2, "cwd": tmp_path}
    (tmp_path / "tmp").mkdir()
    with running(command, **options) as process:
        refused = process.stdout.readline()
        assert "decode=processes: the data set cannot be opened in another process (AttributeError" in refused
        assert {process.stdout.readline() for _ in range(2)} == {"ready\n", "decodes\n"}
        found = children(process.pid)
        assert len(found) >= 2
        process.kill()
        process.wait(60)
        wait_for(lambda: not any(map(is_running, found)), seconds=30)
        assert not process.stdout.read()  # no traceback of a worker
    assert set(os.listdir("/dev/shm")) <= before
    assert not os.listdir(tmp_path / "tmp")


def test_shards_are_opened_again_in_a_copy(root):
    folder = ShardFolder(root / "shards")
    assert copy_of(folder).read(3) == folder.read(3)
    assert len(pickle.dumps(folder)) < 1000  # without the index
