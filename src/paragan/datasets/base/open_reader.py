"""Readers of the images of a path: a folder, a zip file or tar files; and what is wrong with a path that is none."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from paragan.core.addresses import is_url
from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets import _tar_files
from paragan.datasets.base.audio_files import ENDINGS
from paragan.datasets.base.file_readers import FileReader, FolderReader, TarReader, ZipReader

ARRAY_SUFFIXES = frozenset((".npz", ".npy"))
_FORMATS = "png jpg webp bmp gif tiff ppm avif jp2 heic"
_MAX_NAMED = 5


def is_archive(path: Path) -> bool:
    return path.suffix in (".zip", ".tgz") or ".tar" in path.suffixes


def list_images(path: str, dataset: str) -> tuple[FileReader, list[bytes]]:
    """Return a reader and the sorted relative paths of the images in a folder, zip or tar file.

    dataset: its name in messages. Raises `DataError` for a path that is missing or damaged, or has fewer than two.
    """
    files = open_reader(path, dataset)
    paths = files.find()
    check_image_count(files, paths)
    return files, paths


def open_reader(path: str, dataset: str = "folder", option: str = "data.path") -> FileReader:
    """Return a reader of a folder, zip or tar file; errors as of `list_images`. dataset, option: names in messages."""
    check_path(path, dataset, option)
    root = Path(path)
    if root.is_dir():
        return FolderReader(root)
    if root.is_file():  # by content: a tar file may end with a zip file; then by suffix, to report a damaged one
        is_tar = _tar_files.is_tar(root)
        if not is_tar and (zipfile.is_zipfile(root) or root.suffix.lower() == ".zip"):
            return ZipReader(root)
        if is_tar or ".tar" in root.name or root.suffix == ".tgz":
            return open_tars([root], root)
    raise DataError(
        f"{option}: {path!r} is not a folder, .zip or .tar file of images; pass the folder that contains them"
    )


def check_image_count(files: FileReader, paths: list[bytes], option: str = "data.path") -> None:
    """Raise `DataError` for fewer than two images."""
    if len(paths) >= 2:
        return
    count = "only one image" if paths else f"no images ({_FORMATS})"
    archives = sorted(str(file) for file in Path(files.name).glob("*") if is_archive(file))
    hint = f"pass the archive: {option}={archives[0]}" if archives else f"check {option}"
    if any(kind.encode() in ENDINGS for kind in files.ignored):
        hint = f"for audio, train the recipe vocoder or codec with data.path={files.name}"
    elif not ARRAY_SUFFIXES.isdisjoint(files.ignored):
        hint = "arrays are read from one file, of all images: data.name=npz data.path=FILE"
    elif len(archives) > 1:
        hint = f"unpack the archives ({join_some(archives)}), or pass one of them"
    ignored = ", ".join(f"{number:,} {kind}" for kind, number in files.ignored.most_common(_MAX_NAMED))
    hint = "; ".join((*files.notices, *([f"ignored: {ignored}"] if ignored else []), hint))
    raise DataError(f"{option}: {count} in {files.name!r}, at least two are required; {hint}")


def check_path(path: str, dataset: str = "folder", option: str = "data.path", fix: str = "") -> None:
    """Raise `DataError` unless there is a local file or folder of this name. fix: what to do then, in messages."""
    is_setting = option.startswith("data.")  # or an argument of the command line, such as INPUT
    fix = fix or (f"pass {option}=DIR" if is_setting else "check its path")
    if is_url(path):
        raise DataError(
            f"{option}: data set {dataset!r} reads local files; pass data.name=shards for shards at an address"
        )
    if not path:
        raise DataError(f"{option} is required for dataset {dataset!r}; {fix}")
    if Path(path).suffix in ARRAY_SUFFIXES:
        raise DataError(f"{option}: {path!r} holds arrays; pass data.name=npz")
    if not Path(path).exists():
        raise DataError(f"{option}: {describe_missing(path)}; {fix}")


def describe_missing(path: str) -> str:
    """Describe a folder that does not exist, and where it was looked for."""
    return f"no folder {path!r}" if os.path.isabs(path) else f"no folder {path!r} in {os.getcwd()}"


def open_tars(tars: Sequence[Path], name: Path) -> TarReader:
    """Open tar files; the result is cached because both splits read the same files."""
    return _open_tars(tuple(tars), name, tuple((file.st_size, file.st_mtime_ns) for file in map(os.stat, tars)))


@lru_cache(maxsize=1)
def _open_tars(tars: tuple[Path, ...], name: Path, stamps: tuple[tuple[int, int], ...]) -> TarReader:
    return TarReader(tars, name)
