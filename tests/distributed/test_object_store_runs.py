"""Whole command lines with a run folder in an S3 server: killed in an upload, resumed where nothing else is left."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from benchmarks.storage_emulator import QUIET, Conditions, forward, s3_server, serve
from benchmarks.storage_emulator.s3_server import ENVIRONMENT, create_bucket
from paragan.extensions.buckets.bucket_checkpoints import BucketCheckpoints
from paragan.extensions.buckets.lease import LEASE
from paragan.storage.bucket import open_bucket
from tests.processes import environment
from tests.remote_storage import skip_without_s3

pytestmark = [pytest.mark.distributed, pytest.mark.chaos, pytest.mark.slow]

ADDRESS = "s3://bucket/runs/one"
LAST = "step-000000060"
WORDS = (
    "digits", "data.size=8", "model.width=4", "model.latent=8", "train.batch=8", "train.kimg=0.48",
    "every.save_kimg=0.04", "every.sample_kimg=0.2", "evaluation.features=null", "train.timeout_s=60",
)  # fmt: skip
SLOW = Conditions(latency_ms=400)


@pytest.fixture
def server(monkeypatch):
    """The proxy in front of an S3 server with an empty bucket."""
    skip_without_s3("s3")
    with s3_server() as endpoint, serve(QUIET, forward(endpoint)) as proxy:
        create_bucket(endpoint, "bucket")
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": proxy.url}.items():
            monkeypatch.setenv(name, value)
        yield proxy


@contextmanager
def training(folder, out, *words):
    """A `train` command in a process group, which is killed at the end of the block."""
    command = [sys.executable, "-m", "paragan", "train", *WORDS, *words, "--out", out]
    variables = environment(PARAGAN_CACHE=str(folder / "cache"))
    process = subprocess.Popen(
        command, env=variables, cwd=folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(ValueError):  # its pipe is closed
            process.communicate(timeout=60)


def train(folder, out, *words):
    with training(folder, out, *words) as process:
        text, _ = process.communicate(timeout=200)
        return process.returncode, text


def files_of(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def files_in_bucket(folder):
    BucketCheckpoints(open_bucket(ADDRESS), "checkpoints").download(LAST, folder / "downloaded")
    return files_of(folder / "downloaded")


def wait_for_half_an_upload():
    """Return while a checkpoint after the first one has files in the bucket and no manifest."""
    bucket = open_bucket(ADDRESS)
    remote = BucketCheckpoints(bucket, "checkpoints")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        committed = remote.committed()
        started = {name.split("/")[1] for name in bucket.list("checkpoints/")}
        if committed and max(started) > committed[-1]:
            return
        time.sleep(0.02)
    raise TimeoutError("no upload was seen")


@pytest.mark.parametrize("words", [(), ("devices=2",)], ids=["1", "2"])
def test_run_killed_in_an_upload_resumes_on_an_empty_machine_bit_for_bit(server, tmp_path, words):
    code, text = train(tmp_path, str(tmp_path / "plain"), *words)
    assert code == 0, text
    server.conditions = SLOW
    with training(tmp_path, ADDRESS, *words) as process:
        wait_for_half_an_upload()
        os.killpg(process.pid, signal.SIGKILL)
    server.conditions = QUIET
    shutil.rmtree(tmp_path / "cache")
    code, text = train(tmp_path, ADDRESS, *words)
    assert code == 0, text
    assert "waiting 30 s for a sign of life" in text and "resuming at step" in text
    assert files_in_bucket(tmp_path) == files_of(tmp_path / "plain" / "checkpoints" / LAST)
    assert LEASE not in open_bucket(ADDRESS).list()
