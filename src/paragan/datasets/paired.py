"""Pairs of pictures side by side in one file each, A left and B right (Isola et al. 2017): a folder, .zip or .tar.

Source: the files themselves. The CMP facades in this form (A photo, B labels) are of R. Tylecek and R. Sara, "Spatial
pattern templates for recognition of objects with regular structure", GCPR 2013.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.option_types import Count, FilePath, Natural, Range
from paragan.core.protocols import Paired
from paragan.datasets import _archives, _image_decoding, _image_paths
from paragan.datasets._damaged_images import exclude_damaged, with_skip_hint
from paragan.datasets._image_files import FolderReader, ImageFiles


@dataclass(frozen=True)
class Options:
    """A folder, .zip or .tar file of pairs: the two halves of each image."""

    path: FilePath = ""
    """The folder, .zip or .tar file."""
    direction: Literal["a_to_b", "b_to_a"] = "a_to_b"
    """From the left half to the right one, or back."""
    size: Literal[8, 16, 32, 64, 128, 256, 512] = 256
    """Height and width in pixels of each half."""
    load_size: Count | None = None
    """Training pairs are resized to this and cropped to `size` at random; null: 286 for 256, in proportion for
    others; equal to `size`: no crop.
    """
    flip: bool = True
    """Mirror half of the training pairs."""
    channels: Literal[1, 3] = 3
    """1: grey, 3: colour."""
    held_out: Annotated[float, Range(above=0, most=0.5)] = 0.1
    """Share of the images held out from training, unless the data has split folders (`train` and `val`)."""
    cache_mb: Natural = 256
    """MiB of decoded pairs held in memory, per split."""
    damaged: Literal["stop", "skip"] = "stop"
    """What a file that is no pair of images does: `stop` the run when it is fetched, or `skip`: decode all files
    once before training and leave those out.
    """


def source(options: Options, split: Literal["train", "held_out"]) -> Paired:
    """(channels, size, size) each. Only the names are read now; a damaged file is a `DataError` when it is fetched.

    Raises `DataError` where there is no such folder or file, fewer than two pictures in it, or the load size is less
    than the size.
    """
    files, paths = _archives.list_images(options.path)
    notices: tuple[str, ...] = ()
    if options.damaged == "skip":
        at_final_size = partial(_decode_pair, options.size, options.channels)
        paths, notices = exclude_damaged(
            files, paths, at_final_size, f"paired {options.size} {options.channels}", options.path
        )
    part = _image_paths.split_paths(paths, split, options.held_out, options.path)
    part = _image_paths.SplitPaths(part.paths, None, ())  # folders are no classes here
    load = _load_size(options) if split == "train" else options.size
    seal = f"{options.direction} {options.size} {options.flip}"
    shape = (options.channels, load, 2 * load)
    draw = partial(_decode_pair, load, options.channels)
    whole = ImageFiles(files, part, shape, with_skip_hint(draw), options.cache_mb << 20, seal, notices)
    return PairedImages(whole, options.size, options.direction == "b_to_a", options.flip and split == "train")


def read_inputs(path: str, shape: tuple[int, int, int]) -> Tensor:
    """Pictures to make others from: uint8 (N, *shape), of a folder, a .zip or .tar file or one file, in order of name.

    Of each the largest square in the middle. Raises `DataError` where there are none, or one is damaged.
    """
    root = Path(path)
    alone = root.is_file() and root.name.lower().endswith(_image_decoding.EXTENSIONS)
    files, names = (FolderReader(root.parent), [os.fsencode(root.name)]) if alone else _archives.list_images(path)
    drawn = []
    for name in map(os.fsdecode, names):
        image = _image_decoding.convert_image(
            _image_decoding.decode_image(files.read(name), files.where(name)), files.where(name), shape[0], 255
        )
        drawn.append(
            torch.from_numpy(_image_decoding.to_chw_array(_image_decoding.resize_square(image, shape[1], crop=True)))
        )
    return torch.stack(drawn)


class PairedImages:
    """Fulfils `core.seams.Paired` with both halves of wider pictures. back: the right half is the condition."""

    def __init__(self, whole: ImageFiles, size: int, back: bool, flip: bool) -> None:
        self._whole, self._back, self._flip = whole, back, flip
        self._room = whole.shape[1] - size + 1  # places of a crop along either axis
        self.shape = (whole.shape[0], size, size)
        self.class_names: tuple[str, ...] = ()
        self.notices = whole.notices

    def __len__(self) -> int:
        return len(self._whole)

    @property
    def fingerprint(self) -> str:
        return self._whole.fingerprint

    def fetch(self, indices: Any) -> tuple[Tensor, None]:
        """indices: int64 array (B,). The targets alone, uint8 x_BCHW; of training pairs the middle."""
        return self.fetch_pairs(indices)[0], None

    def fetch_pairs(self, indices: Any, places: Any = None, seed: int = 0) -> tuple[Tensor, Tensor]:
        """As `core.seams.Paired` has it."""
        wide_BCHW, _ = self._whole.fetch(indices)
        both = torch.stack(wide_BCHW.chunk(2, 3)[:: -1 if self._back else 1])
        middle = (self._room // 2, self._room // 2, False)
        draws = [middle] * len(wide_BCHW) if places is None else [self._drawn(seed, int(p)) for p in places]
        cut = [self._cut(both[:, row], *draw) for row, draw in enumerate(draws)]
        condition, x = torch.stack(cut, 1) if cut else both[..., : self.shape[1], : self.shape[2]]
        return x.contiguous(), condition.contiguous()

    def _drawn(self, seed: int, place: int) -> tuple[int, int, bool]:
        """Of this place of the stream, whoever loads it: both halves of a pair move together."""
        key = rng.key(seed, "pair", place)
        rest, top = divmod(key, self._room)
        rest, left = divmod(rest, self._room)
        return top, left, self._flip and rest % 2 == 1

    def _cut(self, x_2CHW: Tensor, top: int, left: int, flip: bool) -> Tensor:
        x = x_2CHW[:, :, top : top + self.shape[1], left : left + self.shape[2]]
        return x.flip(3) if flip else x


def _load_size(options: Options) -> int:
    load = round(options.size * 286 / 256) if options.load_size is None else options.load_size
    if load < options.size:
        raise DataError(f"data.load_size: found {load}, expected at least data.size ({options.size}); raise it")
    return load


def _decode_pair(size: int, channels: int, data: bytes, where: str) -> NDArray[np.uint8]:
    """Both halves at this size, side by side again: resized apart, for at the seam they would run into each other."""
    image = _image_decoding.convert_image(_image_decoding.decode_image(data, where), where, channels, background=255)
    if image.width < 2 or image.width % 2:
        found = f"a picture {image.width} px wide"
        raise DataError(f"{where}: found {found}, expected an even width: two pictures of a size side by side")
    half = image.width // 2
    halves = [image.crop((left, 0, left + half, image.height)) for left in (0, half)]
    if halves[0].size != (size, size):
        halves = [image.resize((size, size), Image.Resampling.BICUBIC) for image in halves]
    return np.concatenate([_image_decoding.to_chw_array(image) for image in halves], axis=2)
