"""Folders of results that the user names: a record says which weights and options made the files in them."""

import errno
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from paragan.core.errors import ConfigError, DataError
from paragan.core.files import (
    check_no_link,
    create_subfolder,
    is_temporary,
    open_to_append,
    read_bytes,
    read_json_lines,
    write_bytes,
    write_text,
)
from paragan.export.sampler import Sampler

_MAX_RECORD_BYTES = 1 << 16
_MAX_NAME_BYTES = 255  # of file systems
_SOURCES = "inputs.jsonl"
_OF_ONE_FILE = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)


def prepare_output_folder(out: Path, name: str, sampler: Sampler, options: Mapping[str, Any]) -> None:
    """Create a folder with the record `name` of weights and options; `ConfigError` for a folder of other results."""
    check_no_link(out)
    record = json.dumps({"weights": digest_of_weights(sampler), **options}, sort_keys=True)
    if not out.is_dir() or all(_is_record(path, name) for path in out.iterdir()):
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / name, record)
    elif _recorded(out / name) != record:
        raise ConfigError(
            f"--out: '{out}' holds other files, or results of another checkpoint or of other options; pass a new folder"
        )


def output_paths(names: Sequence[str], ending: str) -> list[PurePosixPath]:
    """Return the path of the result of each input: its name with another ending, or with both where two have that name.

    All differ, also where capitals do not count, and none is the folder of another; a name that is too long for a
    file system ends with its hash. Raises `DataError` for a name that leads out of its folder.
    """
    plain_paths = [_result_path(name, "", ending) for name in names]
    counts = Counter(map(_key, plain_paths))
    folders = {_key(folder) for path in plain_paths for folder in path.parents}
    unique = {key for key, number in counts.items() if number == 1} - folders
    used = folders | unique
    paths = []
    for name, path in zip(names, plain_paths, strict=True):
        if _key(path) not in unique:
            path = next(path for path in _other_paths(name, ending) if _key(path) not in used)
            used.add(_key(path))
        paths.append(path)
    return paths


class OutputFiles:
    """Results in a folder, and of which state of which input each was made: one whose input changed is made again."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._sources: dict[str, str] = {}
        with suppress(FileNotFoundError):
            for line in read_json_lines(out / _SOURCES):
                self._sources[str(line.get("output"))] = str(line.get("input"))

    def has(self, path: PurePosixPath, source: str) -> bool:
        """Return whether a result is there, of this state of its input."""
        return self._sources.get(str(path)) == source and (self._out / path).is_file()

    def write(self, path: PurePosixPath, content: bytes, source: str) -> None:
        """Write a result. Raises `DataError` if there cannot be a file of this name."""
        try:
            create_subfolder(self._out, str(path.parent))
            write_bytes(self._out / path, content)
        except OSError as error:
            if error.errno not in _OF_ONE_FILE:
                raise
            reason = f"{self._out / path}: cannot be written ({error.strerror})"
            raise DataError(f"{reason}; rename the input, or pass a new folder") from None
        line = json.dumps({"output": str(path), "input": source})
        with open_to_append(self._out / _SOURCES) as file:
            file.write(f"\n{line}".encode())  # first a line's end: a full disk may have cut the line before


def _other_paths(name: str, ending: str) -> Iterator[PurePosixPath]:
    suffix = PurePosixPath(name).suffix
    yield _result_path(name, suffix, ending)
    for number in count(2):
        yield _result_path(name, f"{suffix}-{number}", ending)


def _result_path(name: str, mark: str, ending: str) -> PurePosixPath:
    """Return the path of a result, with a mark in front of its ending."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"INPUT: {name!r} leads out of its folder; remove it from the archive")
    folders = [_fitting(part, "") for part in path.parent.parts]
    return PurePosixPath(*folders, _fitting(path.stem, f"{mark}{ending}"))


def _fitting(stem: str, ending: str) -> str:
    """Return a name of a file or folder that file systems take."""
    name = os.fsencode(stem)
    if len(name) + len(os.fsencode(ending)) <= _MAX_NAME_BYTES:
        return stem + ending
    mark = hashlib.blake2b(name + os.fsencode(ending), digest_size=4).hexdigest()
    end = os.fsencode(ending)[-_MAX_NAME_BYTES // 2 :]  # with the ending of the input, which may be long
    return os.fsdecode(name[: _MAX_NAME_BYTES - len(mark) - 1 - len(end)] + f"-{mark}".encode() + end)


def _key(path: PurePosixPath) -> str:
    return str(path).casefold()


def _is_record(path: Path, name: str) -> bool:
    """Return whether a file is no result: a call that failed or was killed may have left no others."""
    return path.name in (name, _SOURCES) or is_temporary(path, path.with_name(name))


def _recorded(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return read_bytes(path, _MAX_RECORD_BYTES).decode()
    return ""


def digest_of_weights(sampler: Sampler) -> str:
    """Return a hash of the weights of a generator, by which results and tokens are known to be of it."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(sampler.net.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
