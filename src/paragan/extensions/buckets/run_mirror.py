"""Mirror of a run folder: a thread that uploads checkpoints, record and samples."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paragan.checkpoint.manifest import MANIFEST, STATE, read_json
from paragan.checkpoint.writer import CheckpointWriter, link_checkpoint
from paragan.core.errors import CheckpointError, StorageError, describe_error
from paragan.core.files import open_to_append, remove_tree
from paragan.engine.rollback_state import rollback_targets
from paragan.extensions.buckets.bucket_checkpoints import BucketCheckpoints
from paragan.extensions.buckets.lease import Lease
from paragan.extensions.buckets.mirrored_files import MirroredFiles
from paragan.storage.bucket import ObjectBucket

UPLOADS = "uploads.jsonl"
_POLL_S = 0.5  # between two looks for new files
_PAUSE_S = 5.0  # after a failure


class RunMirror:
    """Uploads of one run folder. keep: number of checkpoints in the bucket. log: receives warnings.

    lease: held by this process; once it is lost, the process stops by SIGTERM.
    """

    def __init__(self, bucket: ObjectBucket, folder: Path, lease: Lease, keep: int, log: Callable[[str], None]) -> None:
        self.checkpoints = BucketCheckpoints(bucket, "checkpoints", check_lease=lease.check_lost)
        self.best = BucketCheckpoints(bucket, "best", ("score.json",), lease.check_lost)
        self.files = MirroredFiles(bucket=bucket, folder=folder, check_lease=lease.check_lost)
        self._folder = folder
        self._staging = folder.with_name(f"{folder.name}.upload")
        self._lease = lease
        self._keep = keep
        self._log = log
        self._uploaded: set[tuple[str, int]] = set()  # checkpoints, by `_key`
        self._failure = ""  # of the newest try; empty: it succeeded
        self._ending = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Upload the rest and end the thread. Raises `StorageError` if that takes longer."""
        self._deadline = time.monotonic() + timeout_s
        self._ending.set()
        self._thread.join(timeout_s)
        is_late = self._thread.is_alive()  # its upload fails once the files are gone, and the deadline is over
        failure = self._failure
        remove_tree(self._staging)
        if self._lease.is_lost:
            self._lease.check_lost()
        if failure or is_late:
            late = f"{self.files.bucket.address}: no response within {timeout_s:g} s"
            raise StorageError(f"the end of the run is not uploaded: {failure or late}; the same command uploads it")

    def mark_uploaded(self, path: Path) -> None:
        """Do not upload this checkpoint, which came from the bucket."""
        self._uploaded.add(_key(path))

    def _work(self) -> None:
        while not self._lease.is_lost:
            is_last = self._ending.is_set()
            self._try_to_upload(is_last)
            if is_last and (not self._failure or time.monotonic() > self._deadline):
                return
            if self._failure and is_last:  # `_ending` is set, so it would not wait
                time.sleep(min(_PAUSE_S, max(0.0, self._deadline - time.monotonic())))
            else:
                self._ending.wait(_PAUSE_S if self._failure else _POLL_S)
        if not self._ending.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def _try_to_upload(self, is_last: bool) -> None:
        former_failure = self._failure
        try:
            self._upload_new(is_last)
            self._failure = ""
        except Exception as error:  # also an unexpected one: the thread must not end in silence
            self._failure = describe_error(error)
            if not former_failure and not self._lease.is_lost:
                self._log(f"warning: {self._failure}; training continues")

    def _upload_new(self, is_last: bool) -> None:
        if is_last or time.monotonic() >= self.files.next_upload:
            self.files.upload()
        if paths := CheckpointWriter(folder=self._folder / "checkpoints").paths():
            self._upload_run(paths[-1])
        best = self._folder / "best"
        if (best / MANIFEST).is_file():
            name = f"step-{int(read_json(best / STATE)['step']):09d}"
            if self._upload(self.best, best, name):
                self.best.prune(1)

    def _upload_run(self, newest: Path) -> None:
        """Upload the newest checkpoint, after those to which the run may roll back."""
        try:
            if _key(newest) in self._uploaded:
                return
            protected = rollback_targets(newest)
        except (CheckpointError, FileNotFoundError):
            if (newest / MANIFEST).exists():
                raise
            return  # another has replaced it
        for path in protected:
            with suppress(CheckpointError):  # damaged: it must not hold up the newest one
                self._upload(self.checkpoints, path, path.name)
        if self._upload(self.checkpoints, newest, newest.name):
            self.checkpoints.prune(self._keep, [path.name for path in protected])

    def _upload(self, checkpoints: BucketCheckpoints, path: Path, name: str) -> bool:
        """Upload a checkpoint, unless that was done or another has replaced it; return whether bytes were sent.

        name: in the bucket; that of `best` has its step, its folder has none.
        """
        began = time.time()
        staged = self._staging / path.name
        remove_tree(staged)
        try:
            key = _key(path)
            if key in self._uploaded:
                return False
            link_checkpoint(path, staged)  # the folder may be pruned during the upload
        except FileNotFoundError:
            if (path / MANIFEST).exists():
                raise
            return False
        num_bytes = checkpoints.upload(staged, name, self.files.upload)
        remove_tree(staged)
        self._uploaded.add(key)
        if not num_bytes:
            return False  # the bucket had it
        values = {
            "checkpoint": f"{checkpoints.folder}/{name}",
            "bytes": num_bytes,
            "seconds": round(time.time() - began, 3),
            "behind_s": round(time.time() - key[1] / 1e9, 3),  # since the checkpoint was complete
        }
        with open_to_append(self._folder / UPLOADS) as file:
            file.write(json.dumps(values).encode() + b"\n")
        return True


def _key(path: Path) -> tuple[str, int]:
    """Return what differs for a checkpoint that is written anew: its folder, and the time of its manifest."""
    return str(path), (path / MANIFEST).stat().st_mtime_ns
