"""How long a save holds up training if the run is in an object store: with the mirror, and with uploads in the save.

`python -m benchmarks.checkpoint_upload [MEGABYTES]`. The store is moto's S3 server behind a proxy on the same machine,
with 20 ms of latency. Seconds are of the wall clock, since an upload is mostly waiting.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch

from benchmarks.paired_timing import Ratio, compare, keep
from benchmarks.storage_emulator import Conditions, forward, s3_server, serve
from benchmarks.storage_emulator.s3_server import ENVIRONMENT, create_bucket
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.layout import Pieces
from paragan.extensions.buckets.bucket_checkpoints import BucketCheckpoints
from paragan.extensions.buckets.lease import Lease
from paragan.extensions.buckets.run_mirror import RunMirror
from paragan.storage.bucket import open_bucket

CONDITIONS = Conditions(latency_ms=20)
PAIRS = 15
_IDLE_S = 120.0


@contextmanager
def store() -> Iterator[None]:
    """An S3 server behind the proxy, in the environment of this process."""
    with s3_server() as endpoint, serve(CONDITIONS, forward(endpoint)) as proxy:
        create_bucket(endpoint, "bucket")
        os.environ.update({**ENVIRONMENT, "AWS_ENDPOINT_URL": proxy.url})
        yield


def saver(folder: Path, megabytes: int) -> Callable[[], Path]:
    """Return a function that saves a checkpoint of the next step."""
    writer = CheckpointWriter(folder=folder / "checkpoints", keep=1)
    tensors = {"net/w": torch.randn(megabytes << 17)}  # half for each player, 4 bytes each
    groups = {"g": Pieces(tensors), "d": Pieces(tensors)}
    steps = count(1)
    return lambda: writer.save(next(steps), groups, {})


def measure(folder: Path, megabytes: int) -> dict[str, Ratio]:
    """Return the ratio of the stall with the mirror, idle and uploading, to that of a save with its upload."""
    bucket = open_bucket("s3://bucket/mirrored")
    lease = Lease(bucket)
    lease.acquire(print)
    mirror = RunMirror(bucket, folder / "mirrored", lease, 1, print)
    save_mirrored = saver(folder / "mirrored", megabytes)
    save_plain = saver(folder / "plain", megabytes)
    remote = BucketCheckpoints(open_bucket("s3://bucket/plain"), "checkpoints")
    mirror.start()

    def save_and_upload() -> None:
        path = save_plain()
        remote.upload(path, path.name, lambda: None)
        remote.prune(1)

    def wait_until_idle() -> None:
        newest = max((path.name for path in (folder / "mirrored" / "checkpoints").glob("step-*")), default="")
        deadline = time.monotonic() + _IDLE_S
        while newest and mirror.checkpoints.committed() != [newest]:
            assert time.monotonic() < deadline, "the mirror does not upload"
            time.sleep(0.05)

    def begin_upload() -> None:
        wait_until_idle()
        save_mirrored()
        time.sleep(1.0)  # the next save meets the upload of this one

    idle = compare(save_mirrored, save_and_upload, PAIRS, 1, time.perf_counter, wait_until_idle)
    begin_upload()
    busy = compare(save_mirrored, save_and_upload, PAIRS, 1, time.perf_counter, begin_upload)
    mirror.finish(_IDLE_S)
    lease.release()
    return {"no upload runs": idle, "an upload runs": busy}


def main(megabytes: int = 64) -> None:
    """Measure and write the result."""
    with tempfile.TemporaryDirectory() as folder, store():
        store_text = "20 ms per request, bandwidth not limited"
        note = f"stall of a save of {megabytes} MB: mirror / upload in the save; {store_text}"
        keep("checkpoint-upload", measure(Path(folder), megabytes), note, "wall")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
