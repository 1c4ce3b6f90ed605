"""From pairs of images, in one picture or in two files, to pixels of one shape: A, then B, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from paragan.core.errors import DataError
from paragan.datasets import _image_decoding
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._image_decoding import PixelSettingError
from paragan.datasets._image_formats import image_suffix
from paragan.datasets._image_values import read_levels, read_values
from paragan.datasets._options import PixelOptions
from paragan.datasets._pair_files import SIDE_NAMES, split_pair
from paragan.datasets._value_summary import ValueSummary

_NUM_EXAMINED = 16  # pairs that are read at the start
_TOLERANCE = 0.05  # of a ratio of sides


@dataclass(frozen=True, kw_only=True)
class SideFormat:
    """Settings of A or B.

    channels: None: as the files are. role: in the names of settings, `condition_` or empty. is_guessed: the channels
    are those of a few files.
    """

    channels: int | None
    limits: tuple[float, float] | None
    role: str
    is_guessed: bool = False

    def with_channels_of(self, modes: set[str]) -> SideFormat:
        """Return this side with the channels of a few files, by Pillow's modes, unless they are set."""
        if self.channels is not None:
            return self
        return replace(self, channels=1 if modes == {"L"} else 3, is_guessed=True)

    def read(self, data: bytes, where: str) -> Image.Image:
        """Decode a file, upright, to 8 bits, grey or RGB as it is."""
        try:
            if self.limits is None:
                image = _image_decoding.decode_image(data, where)
                channels = 1 if Image.getmodebase(image.mode) == "L" else 3
                return _image_decoding.convert_image(image, where, channels, background=255)
            channels = 1 if read_values(data, where).colours_HWC.shape[2] == 1 else 3
            levels = read_levels(data, where, PixelOptions(range=self.limits, channels=channels))
            bands = [Image.fromarray(np.rint(np.asarray(level) * 255).astype(np.uint8)) for level in levels]
            return bands[0] if channels == 1 else Image.merge("RGB", bands)
        except DataError as error:
            raise type(error)(self.named(str(error))) from None

    def named(self, text: str) -> str:
        """Return a message of a reader of single images, which names `data.range`, with this side's setting instead."""
        return text.replace("data.range", f"data.{self.role}range")


@dataclass(frozen=True, kw_only=True)
class PairDecoder:
    """Decoder of pairs to uint8 (channels of A and B, height, width). is_two_files: not one picture of two halves."""

    size: tuple[int, int]
    sides: tuple[SideFormat, SideFormat]
    is_two_files: bool

    @property
    def channels(self) -> tuple[int, int]:
        """Channels of A and of B; 3 where they are not known yet."""
        return self.sides[0].channels or 3, self.sides[1].channels or 3

    def __call__(self, data: bytes, where: str) -> NDArray[np.uint8]:
        """Crop both images to the ratio of `size` and resize them separately, so that they do not blend at the seam."""
        arrays = []
        for side, image in zip(self.sides, self.halves(data, where), strict=True):
            if side.is_guessed and side.channels == 1 and image.mode != "L":
                raise DataError(
                    f"{where}: a colour image, but those read at the start are grey; pass data.{side.role}channels"
                )
            converted = image.convert("L" if side.channels == 1 else "RGB")
            if converted.size != self.size[::-1]:
                converted = ImageOps.fit(converted, self.size[::-1], Image.Resampling.BICUBIC)
            arrays.append(_image_decoding.to_chw_array(converted))
        return np.concatenate(arrays)

    def halves(self, data: bytes, where: str) -> tuple[Image.Image, Image.Image]:
        """Decode both images of a pair, grey or RGB as they are; `DataError` for what is no pair."""
        side_a, side_b = self.sides
        if self.is_two_files:
            data_a, data_b = split_pair(data)
            a = side_a.read(data_a, f"{where}: A")
            b = side_b.read(data_b, f"{where}: B")
            if not _is_near(a.width * b.height, b.width * a.height):
                shapes = f"{a.width} x {a.height} and {b.width} x {b.height} pixels"
                raise DataError(f"{where}: {shapes} differ in shape; crop one of them")
            return a, b
        a = side_a.read(data, where)
        b = a if side_a.limits == side_b.limits else side_b.read(data, where)
        if not is_pair(*a.size, self.size):
            raise DataError(
                f"{where}: {a.width} x {a.height} pixels are not a pair; a pair is one image twice as wide as high, of "
                f"even width (A left, B right), or a file of the same name in each of {SIDE_NAMES}"
            )
        return a.crop((0, 0, a.width // 2, a.height)), b.crop((a.width // 2, 0, a.width, a.height))

    def with_own_channels(self, images: EncodedImages) -> PairDecoder:
        """Return the decoder with the channels of the files, 1 if all of a few are grey, where none are set.

        Raises `DataError` if none of these is a pair.
        """
        modes_a: set[str] = set()
        modes_b: set[str] = set()
        errors: list[DataError] = []
        for row in _examples(images):
            try:
                a, b = self.halves(images.read([row])[0], images.where(row))
            except PixelSettingError:
                raise
            except DataError as error:
                errors.append(error)
            else:
                modes_a.add(a.mode)
                modes_b.add(b.mode)
        if not modes_a:
            raise errors[0]
        side_a, side_b = self.sides
        return replace(self, sides=(side_a.with_channels_of(modes_a), side_b.with_channels_of(modes_b)))

    def summaries(self, images: EncodedImages) -> list[ValueSummary]:
        """Return what values a few pairs have, in A and in B; without JPEG files, which fit if no range is set."""
        summaries = [ValueSummary(side.limits) for side in self.sides]
        for row in _examples(images):
            with suppress(DataError):  # which is raised when the pair is fetched
                (data,) = images.read([row])
                files = split_pair(data) if self.is_two_files else (data, data)
                for side, summary, file in zip(self.sides, summaries, files, strict=True):
                    if side.limits or image_suffix(file) != ".jpg":
                        summary.add(read_values(file, images.where(row)))
        return summaries

    def warnings(self, summaries: list[ValueSummary]) -> Iterator[str]:
        """Yield warnings about the values of both sides."""
        for name, side, summary in zip("AB", self.sides, summaries, strict=True):
            for line in summary.warnings():
                yield f"{name}: {side.named(line)}"


def is_pair(width: int, height: int, size: tuple[int, int] = (1, 1)) -> bool:
    """Return whether a picture has two halves that are square, or of the shape `size`."""
    return width % 2 == 0 and any(_is_near(width // 2 * h, height * w) for h, w in ((1, 1), size))


def _examples(images: EncodedImages) -> list[int]:
    """Return a few rows, evenly spaced from the first to the last."""
    return sorted(set(np.linspace(0, len(images) - 1, _NUM_EXAMINED).astype(int).tolist()))


def _is_near(a: int, b: int) -> bool:
    return abs(a - b) <= _TOLERANCE * b
