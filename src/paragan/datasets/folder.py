"""Image folder: PNG, JPEG, WebP, BMP, GIF (first frame) or TIFF files in a folder or a zip file.

Source: your files; they are read in place and decoded on demand.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, ImageSize, Interval, Natural
from paragan.core.source import Source
from paragan.datasets import _class_folders, _image_decoding, _image_paths
from paragan.datasets._damaged_images import exclude_damaged, with_skip_hint
from paragan.datasets._image_files import FileReader, FolderReader, ImageFiles, ZipReader

_FORMATS = "png jpg jpeg webp bmp gif tif tiff"


@dataclass(frozen=True)
class Options:
    """A folder or .zip file of images, searched recursively. Its sub-folders are the classes."""

    path: FilePath = ""
    """The folder or .zip file."""
    size: ImageSize = 64
    """Height and width in pixels to which images are resized."""
    channels: Literal[1, 3] = 3
    """Channels: 1 for grey, 3 for colour."""
    crop: Literal["center", "squash"] = "center"
    """Shape of the images: `center` crops the largest square, `squash` changes the aspect ratio."""
    background: Annotated[int, Interval(ge=0, le=255)] = 255
    """Grey level, 0 to 255, behind transparent pixels."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of the images held out from training, if the data has no folders `train` and `val`."""
    cache_mb: Natural = 128
    """MiB of decoded images cached in memory, per split."""
    flip: bool = False
    """Mirror half of the training images, chosen at random in every epoch."""
    damaged: Literal["stop", "skip"] = "stop"
    """Handling of damaged images: `stop` the run when one is loaded, or `skip` them.

    `skip` decodes all images once before training.
    """


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of shape (channels, size, size).

    Only the file names are read; a damaged file raises `DataError` when it is fetched. With
    `damaged: skip`, every image is decoded here unless the result is cached, and damaged images are
    excluded. Raises `DataError` if the folder is missing or has fewer than two images.
    """
    files, paths = list_images(options.path)
    shape = (options.channels, options.size, options.size)
    settings = f"{options.crop} {options.background}"
    decode = partial(decode_resized, options)
    notices: tuple[str, ...] = ()
    if options.damaged == "skip":
        paths, notices = exclude_damaged(files, paths, decode, f"folder {shape} {settings}", options.path)
    part = _image_paths.split_paths(paths, split, options.held_out, options.path)
    notices += _class_folders.class_folder_warnings(files, paths, part, split)
    return ImageFiles(files, part, shape, with_skip_hint(decode), options.cache_mb << 20, settings, notices)


def list_images(path: str, dataset: str = "folder") -> tuple[FileReader, list[bytes]]:
    """Return a reader and the sorted relative paths of the images in a folder or zip file.

    dataset: its name in messages. Raises `DataError` if `path` is not a folder or zip file of at
    least two images.
    """
    root = Path(path)
    if not path:
        raise DataError(f"data.path is required for dataset {dataset!r}; pass data.path=DIR")
    if not root.exists():
        raise DataError(f"data.path: no folder {path!r}; pass data.path=DIR")
    if root.is_dir():
        files: FileReader = FolderReader(root)
        paths = _image_paths.find_images(root)
    elif root.is_file() and (root.suffix.lower() == ".zip" or zipfile.is_zipfile(root)):
        # by suffix, so that a damaged zip file is reported as such
        files = zipped = ZipReader(root)
        paths = _image_paths.find_images_in_zip(zipped.archive)
    else:
        is_archive = ".tar" in root.name or root.suffix == ".tgz"
        fix = "unpack it first" if is_archive else "pass the folder that contains it"
        raise DataError(f"data.path: {path!r} is a file, not a folder or .zip file of images; {fix}")
    if len(paths) < 2:
        count = "only one image" if paths else f"no images ({_FORMATS})"
        raise DataError(f"data.path: {count} in {path!r}, at least two are required; check data.path")
    return files, paths


def decode_resized(options: Options, data: bytes, where: str) -> NDArray[np.uint8]:
    """Decode the bytes of a file to uint8 (channels, size, size). where: the file in messages."""
    image = _image_decoding.decode_image(data, where)
    image = _image_decoding.convert_image(image, where, options.channels, options.background)
    return _image_decoding.to_chw_array(_image_decoding.resize_square(image, options.size, options.crop == "center"))
