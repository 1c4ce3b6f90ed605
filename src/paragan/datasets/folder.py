"""Your own pictures: a folder of PNG, JPEG, WebP, BMP, GIF (first frame) or TIFF files, or a zip file of one.

Source: the files themselves; they are read where they lie and decoded when they are asked for.
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
from paragan.core.option_types import FilePath, Natural, Range
from paragan.core.protocols import Source
from paragan.datasets import _class_folders, _image_decoding, _image_paths
from paragan.datasets._damaged_images import exclude_damaged, with_skip_hint
from paragan.datasets._image_files import FileReader, FolderReader, ImageFiles, ZipReader

_FORMATS = "png jpg jpeg webp bmp gif tif tiff"


@dataclass(frozen=True)
class Options:
    """A folder or .zip file of images. Its sub-folders are the classes, searched recursively."""

    path: FilePath = ""
    """The folder or .zip file."""
    size: Literal[8, 16, 32, 64, 128, 256, 512] = 64
    """Height and width in pixels that images are resized to."""
    channels: Literal[1, 3] = 3
    """1: grey, 3: colour."""
    crop: Literal["center", "squash"] = "center"
    """Which part of an image is resized: the largest centred square, or all of it, squashed."""
    background: Annotated[int, Range(least=0, most=255)] = 255
    """Grey level, 0 to 255, behind transparent pixels."""
    held_out: Annotated[float, Range(above=0, most=0.5)] = 0.1
    """Share of the images held out from training, unless the data has split folders (`train` and `val`)."""
    cache_mb: Natural = 128
    """MiB of decoded images held in memory, per split."""
    flip: bool = False
    """Mirror half of the training images, drawn anew in every epoch."""
    damaged: Literal["stop", "skip"] = "stop"
    """What an image that cannot be decoded does: `stop` the run when it is fetched, or `skip`: decode all images
    once before training and leave those out.
    """


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """(channels, size, size) each. Only the names are read now; a damaged file is a `DataError` when it is fetched.

    With `damaged: skip` every image is decoded now, or its former result is read, and damaged ones are no part of it.
    Raises `DataError` where there is no such folder, or fewer than two pictures in it.
    """
    files, paths = list_images(options.path)
    shape = (options.channels, options.size, options.size)
    seal, draw = f"{options.crop} {options.background}", partial(decode_resized, options)
    notices: tuple[str, ...] = ()
    if options.damaged == "skip":
        paths, notices = exclude_damaged(files, paths, draw, f"folder {shape} {seal}", options.path)
    part = _image_paths.split_paths(paths, split, options.held_out, options.path)
    notices += _class_folders.class_folder_warnings(files, paths, part, split)
    return ImageFiles(files, part, shape, with_skip_hint(draw), options.cache_mb << 20, seal, notices)


def list_images(path: str) -> tuple[FileReader, list[bytes]]:
    """The pictures' relative paths, sorted, and how to read them."""
    root = Path(path)
    if not path or not root.exists():
        found = f"no folder {path!r}" if path else "nothing"
        raise DataError(f"data.path: found {found}, expected a folder of pictures; give data.path=FOLDER")
    if root.is_dir():
        files: FileReader = FolderReader(root)
        paths = _image_paths.find_images(root)
    elif root.is_file() and (
        root.suffix.lower() == ".zip" or zipfile.is_zipfile(root)
    ):  # a damaged one is told as such
        files = zipped = ZipReader(root)
        paths = _image_paths.find_images_in_zip(zipped.archive)
    else:
        what_to_do = "unpack it first" if ".tar" in root.name or root.suffix == ".tgz" else "give the folder it lies in"
        raise DataError(f"data.path: found a file, {path!r}, expected a folder or .zip of pictures; {what_to_do}")
    if len(paths) < 2:
        count = "one picture" if paths else f"no picture ({_FORMATS})"
        raise DataError(f"data.path: found {count} in {path!r}, expected at least two; check data.path")
    return files, paths


def decode_resized(options: Options, data: bytes, where: str) -> NDArray[np.uint8]:
    """uint8 (channels, size, size) from a file's bytes. where: its name in messages."""
    image = _image_decoding.convert_image(
        _image_decoding.decode_image(data, where), where, options.channels, options.background
    )
    return _image_decoding.to_chw_array(_image_decoding.resize_square(image, options.size, options.crop == "center"))
