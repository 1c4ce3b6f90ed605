"""Runs in object stores: mirrored working folders, and copies for reading."""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError, ConfigError, DataError
from paragan.core.files import open_lock_file, read_bytes, read_json_lines, remove_tree
from paragan.core.printable import print_line, print_to_stderr
from paragan.distributed.launch.rank_env import RankEnv, from_environment, mpi_rank_and_size
from paragan.engine.rollback_state import rollback_targets
from paragan.extensions.buckets.bucket_checkpoints import BucketCheckpoints, NewestDownload
from paragan.extensions.buckets.lease import Lease
from paragan.extensions.buckets.mirrored_files import MirroredFiles
from paragan.extensions.buckets.run_mirror import UPLOADS, RunMirror
from paragan.runs.folder import RunFolder, try_to_lock
from paragan.runs.run_request import RunRequest
from paragan.storage.bucket import ObjectBucket, open_bucket
from paragan.storage.byte_store import MissingFileError
from paragan.storage.download import cache_dir

_LEASE_TIMEOUT_S = 5.0  # of one request
_COPY_TIMEOUT_S = 600.0  # for another process that downloads the same run
_FOLLOW_S = 10.0  # between two updates of a copy
_MAX_CONFIG_BYTES = 1 << 20


def working_folder(address: str) -> Path:
    """Return the local folder in which a run at an address trains."""
    return _local_folder("runs", address)


def mirroring(request: RunRequest) -> AbstractContextManager[None]:
    """Mirror the working folder of a run at an address, if that is the task of this process."""
    if not request.address or _is_mirrored_by_another(request.place or from_environment()):
        return nullcontext()
    return mirrored(request)


def _is_mirrored_by_another(place: RankEnv | None) -> bool:
    """Return whether another process mirrors the run: our launcher, or rank 0 of another one."""
    if place is not None:
        return place.rank > 0 or place.lock_fd is not None
    rank_and_size = mpi_rank_and_size()
    return rank_and_size is not None and rank_and_size[0] > 0


@contextmanager
def mirrored(request: RunRequest) -> Iterator[None]:
    """Hold the run's lease, restore the working folder from the bucket, and mirror it inside.

    The local lock file names the lease's owner: once it is unlocked, that process has ended. Raises
    `CheckpointError` if another process trains there, `StorageError` if files are not uploaded
    within `train.timeout_s` at the end.
    """
    if request.fresh:
        raise ConfigError(f"--fresh is not available for {request.address}; give another --out DIR")
    bucket = open_bucket(request.address)
    lease = Lease(open_bucket(request.address, _LEASE_TIMEOUT_S))
    with _locked(request.out, 0.0) as lock:
        lease.acquire(print_line, former=lock.read(100).decode("ascii", "replace"))
        try:
            lock.seek(0)
            lock.write(lease.owner.encode())
            mirror = RunMirror(
                bucket=bucket, folder=request.out, lease=lease, keep=request.config.every.keep, log=print_to_stderr
            )
            _restore(mirror, bucket, request.out)
            mirror.start()
            try:
                yield
            except BaseException:
                with suppress(DataError, CheckpointError):
                    mirror.finish(request.config.train.timeout_s)
                raise
            mirror.finish(request.config.train.timeout_s)
        finally:
            lease.release()


def open_copy(address: str, checkpoints: bool = True, follow: bool = False) -> Path:
    """Return a local copy of the run at an address, which is updated at each call.

    checkpoints: with the newest undamaged and the best one. follow: a thread updates the other files
    while this process lives. Raises `CheckpointError` if there is no run.
    """
    bucket = open_bucket(address)
    folder = _local_folder("copies", address)
    files = MirroredFiles(bucket=bucket, folder=folder)
    with _locked(folder, _COPY_TIMEOUT_S):
        if not files.download():
            raise CheckpointError(f"{address} does not exist; pass the address of a run")
        if checkpoints:
            newest = _download_newest(bucket, folder).name
            _download_best(bucket, folder)
            for path in CheckpointWriter(folder=folder / "checkpoints").paths():
                if path.name != newest:  # older, or of a former run at this address
                    remove_tree(path)
    if follow:
        threading.Thread(target=_follow, args=(files,), name="follow", daemon=True).start()
    return folder


def _follow(files: MirroredFiles) -> None:
    while True:
        time.sleep(_FOLLOW_S)
        with suppress(DataError, CheckpointError, OSError), _locked(files.folder, 0.0):
            files.download()


def _download_newest(bucket: ObjectBucket, folder: Path) -> NewestDownload:
    checkpoints = folder / "checkpoints"
    remote = BucketCheckpoints(bucket, checkpoints.name)
    return remote.download_newest(lambda name: checkpoints / name, print_to_stderr)


def _download_best(bucket: ObjectBucket, folder: Path) -> None:
    """Download the best checkpoint, or remove the copy of a former run's."""
    remote = BucketCheckpoints(bucket, "best", ("score.json",))
    try:
        if not remote.download_newest(lambda name: folder / "best", print_to_stderr).name:
            remove_tree(folder / "best")
    except CheckpointError as error:
        print_to_stderr(f"warning: no best checkpoint: {error}")


def _restore(mirror: RunMirror, bucket: ObjectBucket, folder: Path) -> None:
    """Make the working folder that of the bucket, or leave one that continues it."""
    if folder.is_dir() and not _is_continued(mirror.checkpoints, bucket, folder):
        _clear(folder, mirror.checkpoints.committed())
    if RunFolder(folder).config.exists():
        stored = bucket.list()
    else:
        stored = mirror.files.download()
        _warn_of_missing_lines(folder / "metrics.jsonl", mirror.checkpoints.committed())
        _download_best(bucket, folder)
    newest, damaged = _download_newest(bucket, folder)
    for name in damaged:
        mirror.checkpoints.withdraw(name)  # the run will reach that step again
    if newest:
        mirror.mark_uploaded(folder / "checkpoints" / newest)
        _restore_rollback_targets(mirror, folder / "checkpoints" / newest)
    mirror.files.mark_uploaded(stored)


def _warn_of_missing_lines(record: Path, committed: list[str]) -> None:
    """Warn if a record ends before the newest checkpoint but one; the last lines may follow the newest."""
    saved = int(committed[-2].removeprefix("step-")) if len(committed) > 1 else 0
    with suppress(OSError):
        steps = [line["step"] for line in read_json_lines(record) if isinstance(line.get("step"), int)]
        last = max(steps, default=0)
        if last < saved:
            print_to_stderr(
                f"warning: the record ends at step {last}, before the checkpoint of step {saved}: lines are missing"
            )


def _restore_rollback_targets(mirror: RunMirror, newest: Path) -> None:
    """Download the older checkpoints to which the run may roll back from the newest one."""
    for path in rollback_targets(newest):
        try:
            if not mirror.checkpoints.is_copied(path.name, path):
                mirror.checkpoints.download(path.name, path)
            mirror.mark_uploaded(path)
        except CheckpointError as error:
            print_to_stderr(f"warning: {error}; the run cannot roll back to {path.name}")


def _is_continued(checkpoints: BucketCheckpoints, bucket: ObjectBucket, folder: Path) -> bool:
    """Return whether a folder of a former process continues the run of the bucket."""
    try:
        if committed := checkpoints.committed():
            path = folder / "checkpoints" / committed[-1] / MANIFEST
            return path.read_bytes() == checkpoints.manifest(committed[-1])
        if (folder / UPLOADS).exists():
            return False  # the user has emptied the bucket
        config = RunFolder(folder).config
        stored, _ = bucket.read(config.name, _MAX_CONFIG_BYTES)
        return read_bytes(config, _MAX_CONFIG_BYTES) == stored
    except MissingFileError:
        return True  # nothing was uploaded so far
    except OSError:
        return False


def _clear(folder: Path, committed: list[str]) -> None:
    """Remove a working folder that does not continue the bucket's run; one with newer checkpoints is renamed."""
    local = [path.name for path in CheckpointWriter(folder=folder / "checkpoints").paths()]
    if local and local[-1] > max(committed, default=""):
        aside = RunFolder(folder).set_aside()
        print_line(f"the working folder does not continue the run of the bucket; it was moved to {aside}")
    remove_tree(folder)


def _local_folder(kind: str, address: str) -> Path:
    """Return the folder of an address in the cache: with its last word, to be recognised, and a digest of it all."""
    address = address.rstrip("/")
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return cache_dir() / kind / f"{address.rpartition('/')[2]}-{digest}"


@contextmanager
def _locked(folder: Path, timeout_s: float) -> Iterator[BinaryIO]:
    """Lock a local folder by a file next to it; `CheckpointError` if another process holds it for longer."""
    path = folder.with_name(f"{folder.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open_lock_file(path)
    except OSError as error:
        raise CheckpointError(
            f"cannot write to {path.parent} ({error.strerror}); set PARAGAN_CACHE to a folder on a disk with space"
        ) from None
    with file:
        deadline = time.monotonic() + timeout_s
        while not try_to_lock(file):
            if time.monotonic() >= deadline:
                raise CheckpointError(f"{folder} is in use by another process; wait for it, or stop it")
            time.sleep(0.1)
        yield file
