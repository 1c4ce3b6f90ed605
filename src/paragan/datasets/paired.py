"""Image pairs: pictures with A at the left and B at the right, or two folders of files; a folder, .zip or .tar.

Format of P. Isola et al., "Image-to-image translation with conditional adversarial networks", CVPR
2017. Source: your files. The CMP facades in this format (A photo, B labels) are from R. Tylecek and
R. Sara, "Spatial pattern templates for recognition of objects with regular structure", GCPR 2013.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal, TypeVar

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, ImageSize, Interval, height_and_width
from paragan.core.printable import counted
from paragan.core.source import DerivedSource, Source, image_specs
from paragan.datasets._damaged_images import exclude_damaged, with_skip_hint
from paragan.datasets._encoded_images import EncodedImages, counts_images
from paragan.datasets._folder_layout import arrange
from paragan.datasets._image_source import ImageSource
from paragan.datasets._options import check_range
from paragan.datasets._pair_decoding import PairDecoder, SideFormat
from paragan.datasets._pair_files import TwoSides, describe_single, find_sides, join_pair, match_names
from paragan.datasets.base.file_readers import FileReader
from paragan.datasets.base.open_images import FileImages
from paragan.datasets.base.open_reader import list_images

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """A folder, .zip or .tar file of image pairs: pictures of two halves, or folders A/ and B/ of equal names."""

    path: FilePath = ""
    """The folder, .zip or .tar file."""
    direction: Literal["a_to_b", "b_to_a"] = "a_to_b"
    """Translation direction: from A (the left half, or the folder A/, input/ or low/) to B, or back."""
    size: ImageSize = 256
    """Size in pixels of each half: a number for squares, or HEIGHTxWIDTH."""
    load_size: ImageSize | None = None
    """Training pairs are resized to this size, then cropped to `size` at random.

    null: 286 for size 256, in proportion for other sizes; equal to `size`: no crop.
    """
    flip: bool = True  # `build.data` reads it
    """Mirror half of the training pairs, chosen at random."""
    channels: Literal[1, 3] | None = None
    """Channels of the target: 1 for grey, 3 for colour; null: as the files are."""
    condition_channels: Literal[1, 3] | None = None
    """Channels of the condition, from which the target is made; null: as the files are."""
    range: tuple[float, float] | None = None
    """Stored values of the target that become the darkest and the brightest; null: those of 8 or 16 bits."""
    condition_range: tuple[float, float] | None = None
    """The same of the condition."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of the images held out from training, if the data has no folders `train` and `val`."""
    damaged: Literal["stop", "skip"] = "stop"
    """Handling of files that are not a pair or have no partner: `stop` the run at the first one, or `skip` them.

    `skip` decodes all files once before training.
    """

    def __post_init__(self) -> None:
        for limits in (self.range, self.condition_range):
            check_range(limits)


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of pairs: `image`, the target, and `condition`, both of data.size.

    A few files are read to learn their channels; a damaged file raises `DataError` when it is fetched.
    Raises `DataError` if the folder or file is missing, has fewer than two pairs or, unless `damaged` is
    `skip`, files without a partner, and if load_size is less than size.
    """
    images, sides, decoder = open_pairs(options, options.damaged == "skip")
    if options.damaged == "skip":
        # the repr of a decoder names all that it does, here as in the fingerprint below
        images = exclude_damaged(images, decoder, f"paired {decoder}", options.path)
    rows = images.rows(split, options.held_out)
    load_size = _load_size(options) if split == "train" else decoder.size
    shape = (sum(decoder.channels), *load_size)
    settings = f"{shape} {options.flip} {decoder}"
    stacked = ImageSource(
        images=images,
        rows=rows,
        shape=shape,
        decode=with_skip_hint(replace(decoder, size=load_size)),
        identify=partial(images.fingerprint, rows, settings),
    )
    pairs = PairedImages(stacked, decoder, options.direction == "b_to_a", options.flip and split == "train")
    if split == "train":
        pairs.notices = (*pairs.notices, *decoder.warnings(decoder.summaries(images)))
    reading = _reading(images, sides, decoder.channels, options.direction == "b_to_a")
    pairs.reading = (
        f"{counted(len(images), 'pair')}, holds out {len(images.rows('held_out', options.held_out)):,}; {reading}"
    )
    return pairs


def open_pairs(options: Options, skip: bool = False) -> tuple[EncodedImages, TwoSides | None, PairDecoder]:
    """Open the pairs of a path, the folders A and B there, if any, and what decodes a pair.

    skip: leave files without a partner out, with a notice. Raises `DataError` as `source`.
    """
    path = options.path
    files, paths = list_images(path, "paired")
    sides = find_sides(paths)
    pairs, single = ({}, []) if sides is None else match_names(sides, path, skip)
    images = PairedFiles(files, pairs, path, single) if pairs else FileImages(files, arrange(paths, path, "none"))
    try:
        return images, sides if pairs else None, _decoder(options, images)
    except DataError as error:
        if pairs or sides is None:
            raise
        # two folders without a common name were taken for folders of images of two halves, which they are not either
        problem = f"no file of {sides.names[0]} has a partner of its name in {sides.names[1]}"
        raise DataError(f"data.path={path}: {problem}; as images of two halves: {error}") from None


class PairedFiles(FileImages):
    """Pairs of files by their common names, each as one bytes object (`split_pair`). single: files left out."""

    noun = "pairs"

    def __init__(self, files: FileReader, pairs: Mapping[str, tuple[str, str]], name: str, single: list[str]) -> None:
        left_out = f"files without a partner are left out (data.damaged=skip): {describe_single(single)}"
        notices = (left_out,) if single else ()
        super().__init__(files, arrange(sorted(map(os.fsencode, pairs)), name, "none"), notices)
        self._pairs = pairs
        self.num_without_partner = len(single)
        self.ignored = {kind: 2 * n if counts_images(kind) else n for kind, n in self.ignored.items()}  # files

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [join_pair(*map(self._files.read, self._pairs[self.name(row)])) for row in rows]

    def where(self, row: int) -> str:
        return " + ".join(map(self._files.where, self._pairs[self.name(row)]))

    def stamp(self, row: int) -> str:
        return " ".join(map(self._files.stamp, self._pairs[self.name(row)]))


class PairedImages(DerivedSource):
    """A `Source` of both images of pairs, which `stacked` has one after the other. reverse: B is the condition."""

    def __init__(self, stacked: ImageSource, decoder: PairDecoder, reverse: bool, flip: bool) -> None:
        super().__init__(stacked)
        self._reverse = reverse
        self._flip = flip
        self._channels = decoder.channels
        height, width = decoder.size
        self._num_offsets = (stacked.shape[1] - height + 1, stacked.shape[2] - width + 1)  # down, and to the right
        condition, image = (image_specs((channels, height, width)) for channels in _ordered(self._channels, reverse))
        self.tensors = {**image, "condition": condition["image"]}

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # computed when it is read
        return self.source.fingerprint

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return targets and conditions, uint8 (B, C, H, W) each; centred without `places`."""
        stacked_BCHW = self.source.decode(encoded, rows)["image"]
        keys = [None] * len(stacked_BCHW) if places is None else [rng.key(seed, "pair", int(p)) for p in places]
        crops = [self._crop(x_CHW, key) for x_CHW, key in zip(stacked_BCHW, keys, strict=True)]
        both = torch.stack(crops) if crops else stacked_BCHW[..., : self.shape[1], : self.shape[2]]
        condition, x = _ordered(both.split(self._channels, 1), self._reverse)
        return {"image": x.contiguous(), "condition": condition.contiguous()}

    def _crop(self, x_CHW: Tensor, key: int | None) -> Tensor:
        """Crop and flip both images of a pair by the key of its place, equal on all ranks; centred without one."""
        num_down, num_right = self._num_offsets
        top, left, rest = num_down // 2, num_right // 2, 0
        if key is not None:  # independent numbers from one key: the remainders of one division after the other
            rest, top = divmod(key, num_down)
            rest, left = divmod(rest, num_right)
        crop = x_CHW[:, top : top + self.shape[1], left : left + self.shape[2]]
        return crop.flip(2) if self._flip and rest % 2 == 1 else crop


def _load_size(options: Options) -> tuple[int, int]:
    size = height_and_width(options.size)
    if options.load_size is None:
        return round(size[0] * 286 / 256), round(size[1] * 286 / 256)
    load = height_and_width(options.load_size)
    if load[0] < size[0] or load[1] < size[1]:
        raise DataError(f"data.load_size={options.load_size} is less than data.size={options.size}; increase it")
    return load


def _decoder(options: Options, images: EncodedImages) -> PairDecoder:
    condition = SideFormat(channels=options.condition_channels, limits=options.condition_range, role="condition_")
    target = SideFormat(channels=options.channels, limits=options.range, role="")
    a, b = _ordered((condition, target), options.direction == "b_to_a")
    decoder = PairDecoder(
        size=height_and_width(options.size), sides=(a, b), is_two_files=isinstance(images, PairedFiles)
    )
    return decoder.with_own_channels(images)


def _ordered(pair: Sequence[_T], reverse: bool) -> Sequence[_T]:
    return pair[::-1] if reverse else pair


def _reading(images: EncodedImages, sides: TwoSides | None, channels: tuple[int, int], reverse: bool) -> str:
    names = ("the left half", "the right half") if sides is None else sides.names
    texts = [f"{name} ({'grey' if c == 1 else 'colour'})" for name, c in zip(names, channels, strict=True)]
    condition, target = _ordered(texts, reverse)
    num_others = images.num_ignored_images + (sides.num_others if sides else 0)
    others = f"; {num_others:,} other images are not read" if num_others else ""
    return f"from {condition} to {target}{others}"
