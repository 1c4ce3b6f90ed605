"""Writer of a folder of shards: one shard at a time, so that a stopped preparation can continue."""

import fcntl
import hashlib
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from paragan.core import files
from paragan.core.errors import DataError
from paragan.storage import shard_folder
from paragan.storage.byte_store import LocalStore, StoredFile
from paragan.storage.shard_folder import DESCRIPTION, INDEX, RECORD, UNFINISHED, ShardDescription, shard_name

_SETTINGS = "settings.json"
_FROM_IMAGES = ("num_samples", "num_train", "class_names", "source", "newest")  # what other images change
_SHA256_BYTES = 32
_MAX_PART_BYTES = 1 << 30


@dataclass(frozen=True)
class EncodedSample:
    """An image file as it is stored. suffix: of its name, with a dot. label: -1 without labels.

    split_hash: decides whether the sample is held out.
    """

    image: bytes
    suffix: str
    label: int
    split_hash: int


class ShardWriter:
    """Writes the shards of one data set into a folder.

    planned: the description without sizes and sha256; a folder with another is refused. A shard
    counts as finished when its part of the index is on the disk, which is written after it. Several
    threads may write different shards at the same time.
    """

    def __init__(self, folder: Path, planned: ShardDescription) -> None:
        self._folder = folder
        self._planned = planned
        self._num_shards = -(-planned.num_samples // planned.samples_per_shard)

    def missing(self) -> list[int]:
        """Return the numbers of the shards that are not finished."""
        return [number for number in range(self._num_shards) if not self._is_finished(number)]

    def rows(self, number: int) -> range:
        """Return the rows of the samples of a shard."""
        first = number * self._planned.samples_per_shard
        return range(first, min(first + self._planned.samples_per_shard, self._planned.num_samples))

    def write(self, number: int, samples: Iterable[EncodedSample]) -> None:
        """Write one shard and its part of the index; only one sample is in memory at a time."""
        rows = self.rows(number)
        records = np.zeros(len(rows), RECORD)
        with files.atomic_write(self._folder / shard_name(number)) as file:
            tar = _TarStream(file)
            for place, (row, sample) in enumerate(zip(rows, samples, strict=True)):
                key = shard_folder.sample_key(row)
                if len(sample.image) > shard_folder.MAX_SAMPLE_BYTES:
                    raise DataError(
                        f"sample {key} has {len(sample.image):,} bytes, the limit is {shard_folder.MAX_SAMPLE_BYTES:,}"
                    )
                offset = tar.add(f"{key}{sample.suffix}", sample.image)
                if sample.label >= 0:
                    tar.add(f"{key}.cls", str(sample.label).encode())
                sha256 = np.frombuffer(hashlib.sha256(sample.image).digest(), np.uint8)
                block = offset // shard_folder.BLOCK_BYTES
                records[place] = (block, len(sample.image), sample.label, sample.split_hash, sha256)
            tar.end()
            file.flush()
            os.fsync(file.fileno())
        files.write_bytes(self._part(number), records.tobytes() + tar.digest.digest())

    def finish(self) -> None:
        """Join the parts of the index, write the description and remove what is no longer needed."""
        shards = []
        digest = hashlib.sha256()
        with files.atomic_write(self._folder / INDEX) as file:
            for number in range(self._num_shards):
                part = files.read_bytes(self._part(number), _MAX_PART_BYTES)
                records = part[:-_SHA256_BYTES]
                digest.update(records)
                file.write(records)
                name = shard_name(number)
                size = (self._folder / name).stat().st_size
                shards.append(StoredFile(name, size, part[-_SHA256_BYTES:].hex()))
            file.flush()
            os.fsync(file.fileno())
        index = StoredFile(INDEX, self._planned.num_samples * RECORD.itemsize, digest.hexdigest())
        description = replace(self._planned, index=index, shards=tuple(shards))
        files.write_json(self._folder / DESCRIPTION, asdict(description))
        files.remove_tree(self._folder / UNFINISHED)

    def _part(self, number: int) -> Path:
        return self._folder / UNFINISHED / f"{shard_name(number)}.part"

    def _is_finished(self, number: int) -> bool:
        """Return whether the part of the index is complete and its shard has the size it implies."""
        size = len(self.rows(number)) * RECORD.itemsize + _SHA256_BYTES
        try:
            if self._part(number).stat().st_size != size:
                return False
            last = np.frombuffer(files.read_bytes(self._part(number), size)[:-_SHA256_BYTES], RECORD)[-1]
            return (self._folder / shard_name(number)).stat().st_size == _tar_size(last)
        except OSError:
            return False


@contextmanager
def open_shard_writer(
    folder: Path, planned: ShardDescription, images_path: str, newest_ns: int = 0
) -> Iterator[ShardWriter | None]:
    """Yield a writer that continues what is in the folder; None if the shards are complete.

    images_path: what the shards are made of; if its images have changed, unfinished shards are removed. newest_ns:
    time of the last change. Raises `DataError` for other files, for shards of another source, settings or of earlier
    images, and if another process is writing there.
    """
    if not (folder / UNFINISHED).is_dir():
        if (folder / DESCRIPTION).is_file():
            _check_same(folder, _as_json(shard_folder.read_description(LocalStore(folder))), planned)
            # the first shard: images that changed while the later ones were written count as changed, too
            if newest_ns > (folder / shard_name(number=0)).stat().st_mtime_ns:
                problem = "images of the source have changed since these shards were written"
                raise DataError(f"{folder}: {problem}; pass another folder, or delete this one")
            yield None
            return
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder}: the folder is not empty and holds no shards; pass a new folder")
    (folder / UNFINISHED).mkdir(parents=True, exist_ok=True)
    with files.open_lock_file(folder / UNFINISHED / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{folder}: another process is preparing this folder; wait for it, or stop it") from None
        settings = folder / UNFINISHED / _SETTINGS
        if settings.exists():
            _continue_shards(folder, planned, images_path, newest_ns)
        files.write_json(settings, asdict(planned) | {"path": images_path, "newest": newest_ns})
        yield ShardWriter(folder, planned)


def _continue_shards(folder: Path, planned: ShardDescription, images_path: str, newest_ns: int) -> None:
    """Raise `DataError` for unfinished shards of other settings; remove those of earlier images of the same source."""
    try:
        present = files.read_json_file(folder / UNFINISHED / _SETTINGS, dict)
    except (OSError, ValueError):
        raise DataError(f"{folder}: unfinished shards of unknown settings; delete it, or pass another folder") from None
    settings = {**_as_json(planned), "newest": newest_ns}
    changed = {name: settings[name] for name in _FROM_IMAGES if present.get(name) != settings[name]}
    if present.get("path") != images_path or not changed:
        _check_same(folder, present, planned)
        return
    # other images of the same path: only another setting, which they do not explain, stops the preparation
    _check_same(folder, {**present, **changed}, planned)
    for path in (*(folder / UNFINISHED).glob("*.part"), *folder.glob("shard-*.tar")):
        path.unlink()


def _as_json(description: ShardDescription) -> dict[str, Any]:
    """Return the settings as a file has them: its lists have been tuples."""
    return json.loads(json.dumps(asdict(description)))  # type: ignore[no-any-return]


def _check_same(folder: Path, present: dict[str, Any], planned: ShardDescription) -> None:
    """Raise `DataError` with the first setting that differs. present: as JSON."""
    settings = _as_json(planned)
    for name in sorted(settings.keys() - {"index", "shards"}):
        if present.get(name) != settings[name]:
            what = "another source" if name == "source" else _difference(name, present.get(name), settings[name])
            raise DataError(f"{folder}: holds shards of {what}; pass another folder, or delete this one")


def _difference(name: str, present: Any, planned: Any) -> str:
    if isinstance(present, dict) or isinstance(planned, dict):  # None: not encoded
        before = present if isinstance(present, dict) else {}
        now = planned if isinstance(planned, dict) else {}
        name = next((key for key in {**now, **before} if before.get(key) != now.get(key)), name)
        present = before.get(name)
        planned = now.get(name)
    return f"other settings ({name}: {json.dumps(present)[:60]} there, {json.dumps(planned)[:60]} now)"


class _TarStream:
    """Tar file in ustar format whose bytes depend on names and contents alone."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file = file
        self._size = 0

    def add(self, name: str, content: bytes) -> int:
        """Append a file; return the offset of its content."""
        entry = tarfile.TarInfo(name)  # time, user and group are 0
        entry.size = len(content)
        self._write(entry.tobuf(tarfile.USTAR_FORMAT))
        offset = self._size
        self._write(content)
        self._write(bytes(-len(content) % shard_folder.BLOCK_BYTES))
        return offset

    def end(self) -> None:
        self._write(bytes(2 * shard_folder.BLOCK_BYTES))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.digest.update(data)
        self._size += len(data)


def _tar_size(last: Any) -> int:
    """Return the size of a shard from the record of its last sample."""
    image = -(-int(last["num_bytes"]) // shard_folder.BLOCK_BYTES)
    label = 2 if last["label"] >= 0 else 0  # its header and its content
    end = 2  # of a tar
    return (int(last["block"]) + image + label + end) * shard_folder.BLOCK_BYTES
