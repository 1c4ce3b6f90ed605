"""Image folder: images in a folder, an archive, shards, WebDataset, Parquet or a folder of Hugging Face.

Source: your files; they are read in place and decoded on demand.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from paragan.core.addresses import is_url
from paragan.core.option_types import height_and_width
from paragan.datasets._damaged_images import exclude_damaged, with_skip_hint
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._image_source import ImageSource
from paragan.datasets._options import FolderOptions as Options
from paragan.datasets._pixel_format import PixelFormat
from paragan.datasets.base.open_images import open_encoded_images


def source(options: Options, split: Literal["train", "held_out"], images: EncodedImages | None = None) -> ImageSource:
    """Return a split of shape (channels, height, width). images: instead of those of `options.path`.

    Only the file names are read; a damaged file raises `DataError` when it is fetched. With
    `damaged: skip`, every image is decoded here unless the result is cached, and damaged images are
    excluded. Raises `DataError` if the folder is missing or has fewer than two images.
    """
    if images is None:
        labels = options.labels if isinstance(options.labels, str) else ""
        images = open_encoded_images(options.path, classes=options.classes, labels=labels)
    pixels = PixelFormat(size=height_and_width(options.size), options=options)
    identity = f"{pixels.shape} {pixels.settings}"
    if options.damaged == "skip":
        images = exclude_damaged(images, pixels.decode, f"folder {identity}", options.path)
    rows = images.rows(split, options.held_out)
    warnings = () if is_url(options.path) else pixels.warnings(images, rows)  # also an error, for either split
    source = ImageSource(
        images=images,
        rows=rows,
        shape=pixels.shape,
        decode=with_skip_hint(pixels.decode),
        identify=partial(images.fingerprint, rows, identity),
        dtype=pixels.dtype,
        draws_crops=options.crop == "random" and split == "train",
        notices=() if split == "held_out" else warnings,
    )
    source.reading = images.describe_rest(len(rows)) if split == "train" else ""
    return source
