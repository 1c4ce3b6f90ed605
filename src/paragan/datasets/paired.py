"""Image pairs: each file holds A (left) and B (right) side by side; a folder, .zip or .tar file.

Format of P. Isola et al., "Image-to-image translation with conditional adversarial networks", CVPR
2017. Source: your files. The CMP facades in this format (A photo, B labels) are from R. Tylecek and
R. Sara, "Spatial pattern templates for recognition of objects with regular structure", GCPR 2013.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, ImageSize, Interval, height_and_width
from paragan.core.source import DerivedSource, Source, image_specs
from paragan.datasets import _image_decoding, _image_paths
from paragan.datasets._damaged_images import exclude_damaged, with_skip_hint
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._image_formats import is_image_file
from paragan.datasets._image_source import ImageSource
from paragan.datasets.base.file_readers import FileReader, FolderReader
from paragan.datasets.base.open_images import FileImages, list_images


@dataclass(frozen=True, kw_only=True)
class Options:
    """A folder, .zip or .tar file of image pairs; each image holds both halves of a pair."""

    path: FilePath = ""
    """The folder, .zip or .tar file."""
    direction: Literal["a_to_b", "b_to_a"] = "a_to_b"
    """Translation direction: from the left half (A) to the right half (B), or back."""
    size: ImageSize = 256
    """Size in pixels of each half: a number for squares, or HEIGHTxWIDTH."""
    load_size: ImageSize | None = None
    """Training pairs are resized to this size, then cropped to `size` at random.

    null: 286 for size 256, in proportion for other sizes; equal to `size`: no crop.
    """
    flip: bool = True
    """Mirror half of the training pairs, chosen at random."""
    channels: Literal[1, 3] = 3
    """Channels: 1 for grey, 3 for colour."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of the images held out from training, if the data has no folders `train` and `val`."""
    damaged: Literal["stop", "skip"] = "stop"
    """Handling of files that are not image pairs: `stop` the run at the first one, or `skip` them.

    `skip` decodes all files once before training.
    """


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of pairs, each image of shape (channels, height, width).

    Only the file names are read; a damaged file raises `DataError` when it is fetched. Raises
    `DataError` if the folder or file is missing or has fewer than two images, or if load_size is
    less than size.
    """
    files, paths = list_images(options.path, "paired")
    size = height_and_width(options.size)
    arranged = _image_paths.arrange(paths, options.path)
    images: EncodedImages = FileImages(files, replace(arranged, labels=None, class_names=()))  # folders are no classes
    if options.damaged == "skip":
        at_final_size = partial(_decode_pair, size, options.channels)
        images = exclude_damaged(images, at_final_size, f"paired {options.size} {options.channels}", options.path)
    rows = images.rows(split, options.held_out)
    load_size = _load_size(options) if split == "train" else size
    shape = (options.channels, load_size[0], 2 * load_size[1])
    settings = f"{shape} {options.direction} {options.size} {options.flip}"
    decode = with_skip_hint(partial(_decode_pair, load_size, options.channels))
    wide = ImageSource(
        images=images, rows=rows, shape=shape, decode=decode, identify=partial(images.fingerprint, rows, settings)
    )
    return PairedImages(wide, size, options.direction == "b_to_a", options.flip and split == "train")


def read_inputs(path: str, shape: tuple[int, int, int]) -> Tensor:
    """Read input images for translation: uint8 (N, *shape), in order of name.

    path: a folder, .zip or .tar file, or one image. Images are cropped to the largest centred
    part of this shape. Raises `DataError` if `path` has no images, or one is damaged.
    """
    root = Path(path)
    files: FileReader = FolderReader(root.parent)
    names = [os.fsencode(root.name)]
    if not (root.is_file() and is_image_file(names[0], bytes)):
        files, names = list_images(path, option="--input", min_images=1)
    images = []
    for name in map(os.fsdecode, names):
        x_CHW = _image_decoding.decode_resized(files.read(name), files.where(name), shape[1:], shape[0])
        images.append(torch.tensor(x_CHW))
    return torch.stack(images)


class PairedImages(DerivedSource):
    """A `Source` of the halves of wide images. reverse: the right half is the condition."""

    def __init__(self, wide: ImageSource, size: tuple[int, int], reverse: bool, flip: bool) -> None:
        super().__init__(wide)
        self._reverse = reverse
        self._flip = flip
        channels, height, width = wide.shape
        self._num_offsets = (height - size[0] + 1, width // 2 - size[1] + 1)  # of a crop: down, and to the right
        self.tensors = image_specs((channels, *size), has_pairs=True)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # computed when it is read
        return self.source.fingerprint

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return targets and conditions, uint8 (B, C, H, W) each; centred without `places`."""
        wide_BCHW = self.source.decode(encoded, rows)["image"]
        both = torch.stack(wide_BCHW.chunk(2, 3)[:: -1 if self._reverse else 1])
        centred = (self._num_offsets[0] // 2, self._num_offsets[1] // 2, False)
        draws = [centred] * len(wide_BCHW) if places is None else [self._draw_crop(seed, int(p)) for p in places]
        crops = [self._crop(both[:, row], *draw) for row, draw in enumerate(draws)]
        condition, x = torch.stack(crops, 1) if crops else both[..., : self.shape[1], : self.shape[2]]
        return {"image": x.contiguous(), "condition": condition.contiguous()}

    def _draw_crop(self, seed: int, place: int) -> tuple[int, int, bool]:
        """Draw the crop and flip of a place, equal on all ranks and for both halves of a pair."""
        key = rng.key(seed, "pair", place)
        rest, top = divmod(key, self._num_offsets[0])
        rest, left = divmod(rest, self._num_offsets[1])
        return top, left, self._flip and rest % 2 == 1

    def _crop(self, x_2CHW: Tensor, top: int, left: int, flip: bool) -> Tensor:
        x = x_2CHW[:, :, top : top + self.shape[1], left : left + self.shape[2]]
        return x.flip(3) if flip else x


def _load_size(options: Options) -> tuple[int, int]:
    size = height_and_width(options.size)
    if options.load_size is None:
        return round(size[0] * 286 / 256), round(size[1] * 286 / 256)
    load = height_and_width(options.load_size)
    if load[0] < size[0] or load[1] < size[1]:
        raise DataError(f"data.load_size={options.load_size} is less than data.size={options.size}; increase it")
    return load


def _decode_pair(size: tuple[int, int], channels: int, data: bytes, where: str) -> NDArray[np.uint8]:
    """Decode a file and resize each half separately, so that they do not blend at the seam."""
    image = _image_decoding.convert_image(_image_decoding.decode_image(data, where), where, channels, background=255)
    if image.width < 2 or image.width % 2:
        raise DataError(
            f"{where}: the image is {image.width} px wide; the width must be even: two images of one size side by side"
        )
    half = image.width // 2
    halves = [image.crop((left, 0, left + half, image.height)) for left in (0, half)]
    if halves[0].size != size[::-1]:
        halves = [image.resize(size[::-1], Image.Resampling.BICUBIC) for image in halves]
    return np.concatenate([_image_decoding.to_chw_array(image) for image in halves], axis=2)
