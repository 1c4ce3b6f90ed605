"""Image folder: PNG, JPEG, WebP, BMP, GIF (first frame) or TIFF files in a folder, zip or tar file.

Source: your files; they are read in place and decoded on demand.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Literal

from paragan.core.option_types import height_and_width
from paragan.datasets import _image_paths
from paragan.datasets._batched_resize import find_decoder
from paragan.datasets._damaged_images import exclude_damaged, with_skip_hint
from paragan.datasets._encoded_images import EncodedImages, FileImages
from paragan.datasets._image_source import ImageSource
from paragan.datasets._options import FolderOptions as Options
from paragan.datasets.base.file_readers import FileReader, list_images

_MAX_NAMED = 5


def source(options: Options, split: Literal["train", "held_out"]) -> ImageSource:
    """Return a split of shape (channels, height, width).

    Only the file names are read; a damaged file raises `DataError` when it is fetched. With
    `damaged: skip`, every image is decoded here unless the result is cached, and damaged images are
    excluded. Raises `DataError` if the folder is missing or has fewer than two images.
    """
    files, paths = list_images(options.path)
    shape = (options.channels, *height_and_width(options.size))
    settings = f"{options.crop} {options.background}"
    settings += " bicubic" if options.resize == "bicubic" else ""
    decode = find_decoder(options.resize, options.size, options.channels, options.crop, options.background)
    notices: tuple[str, ...] = ()
    if options.damaged == "skip":
        paths, notices = exclude_damaged(files, paths, decode, f"folder {shape} {settings}", options.path)
    images = FileImages(files, _image_paths.arrange(paths, options.path), notices)
    rows = images.rows(split, options.held_out)
    images.notices = (*images.notices, *class_folder_warnings(files, paths, images))
    identify = partial(images.fingerprint, rows, f"{shape} {settings}")
    return ImageSource(images=images, rows=rows, shape=shape, decode=with_skip_hint(decode), identify=identify)


def class_folder_warnings(files: FileReader, paths: list[bytes], images: EncodedImages) -> tuple[str, ...]:
    """Return a line for all empty class folders, if there are some. paths: sorted, of both splits."""
    classes = {os.fsencode(name) for name in images.class_names}
    empty: list[str] = []
    for top in _image_paths.class_folder_levels(paths):
        without_images = set(files.folders(top)) - _image_paths.folder_names(paths, top) - classes
        empty += [os.fsdecode(top + name) for name in sorted(without_images)]
    if not empty:
        return ()
    named = ", ".join(map(repr, empty[:_MAX_NAMED])) + (", …" if len(empty) > _MAX_NAMED else "")
    no_classes = "" if classes else "; fewer than two folders have images, so no classes are left"
    return (f"folders without images are not classes: {named}{no_classes}",)
