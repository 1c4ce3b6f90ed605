"""Settings that several data sets share. This module does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from paragan.core.addresses import secret_in_url as secret_in_url
from paragan.core.option_types import FilePath, ImageSize, Interval


@dataclass(frozen=True)
class IdxOptions:
    """Location of the files and size of the images."""

    path: FilePath = ""
    """Folder of the four idx files, gzipped or plain. If empty, they are downloaded once."""
    size: Literal[28, 32] = 28
    """Height and width in pixels: 28, or 32 with a black border of two pixels."""


@dataclass(frozen=True, kw_only=True)
class PixelOptions:
    """How images become pixels."""

    channels: Annotated[int, Interval(ge=1, le=16)] = 3
    """Channels: 1 for grey, 3 for colour, 4 with alpha; others are the first bands of TIFF files."""
    bits: Literal[8, 16] = 8
    """Depth to which pixels are rounded: 16 keeps that of PNG, TIFF and grey images."""
    range: tuple[float, float] | None = None
    """Stored values that become the darkest and the brightest; null: 0 and the highest of 8 or 16 bits."""
    crop: Literal["center", "squash", "random", "none"] = "center"
    """Part of an image: `center` crops the largest part of this shape, `squash` changes the aspect ratio.

    `random` crops at the original resolution, drawn for each training image, the centre of held-out ones;
    `none` takes images of this size alone.
    """
    background: Annotated[int, Interval(ge=0, le=255)] = 255
    """Grey level, 0 to 255, behind transparent pixels."""
    resize: Literal["lanczos", "bicubic"] = "lanczos"
    """Filter for resizing: Pillow's `lanczos`, or `bicubic` of torch: faster, a little less sharp."""
    flip: bool = False
    """Mirror half of the training images, chosen at random in every epoch."""

    def __post_init__(self) -> None:
        if self.range is not None and not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise ValueError("range must be two finite numbers, the lower first, such as [-1024, 3071]")


@dataclass(frozen=True, kw_only=True)
class FolderOptions(PixelOptions):
    """Images of a path, searched recursively. Sub-folders are the classes, or files have the labels."""

    path: FilePath = ""
    """A folder, archive (zip; tar, plain or compressed), folder of tar files, Parquet, Hugging Face's, or shards."""
    size: ImageSize = 64
    """Size in pixels to which images are resized: a number for squares, or HEIGHTxWIDTH."""
    classes: Literal["folders", "none"] | None = None
    """Whether sub-folders are classes: `folders` or `none`; null: by their names, and labels in files come first."""
    labels: bool | FilePath = field(default=True, repr=False)
    """Labels of the data; false: none, the run is unconditional. FILE.csv: columns of file names and of labels."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of the images held out from training, if the data has no folders `train` and `val`."""
    damaged: Literal["stop", "skip"] = "stop"
    """Handling of damaged images: `stop` the run when one is loaded, or `skip` them.

    `skip` decodes all images once before training.
    """
