"""Images next to reduced copies of themselves, for super-resolution.

Source: your files, as in `folder`; the copies are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.option_types import height_and_width, nearest_sizes
from paragan.core.source import DerivedSource, Source, TensorSpec
from paragan.datasets import folder
from paragan.datasets._options import FolderOptions


@dataclass(frozen=True, kw_only=True)
class Options(FolderOptions):
    """Images of a path, and by how much the copies are smaller."""

    crop: Literal["center", "squash", "random", "none"] = "random"
    """Part of an image: `random` crops at the original resolution; `center` and `squash` reduce whole images."""
    factor: Literal[2, 4, 8] = 4
    """Height of an image divided by that of its reduced copy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = height_and_width(self.size)
        if any(side % self.factor for side in sides):
            near = nearest_sizes(sides, self.factor)
            raise ValueError(f"size={self.size} is not a multiple of factor={self.factor}; use {near}")


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return `image` (channels, height, width) and `low` (channels, height / factor, width / factor), uint8 or uint16.

    `low` is reduced by a bicubic filter with antialiasing. Labels are left out. Errors as in `folder`.
    """
    pairs = _LowResolution(folder.source(options, split), options.factor)
    enlarged = "" if options.crop == "none" else ", smaller images enlarged"
    reduction = f"low is reduced {options.factor} times by a bicubic filter, from crops: {options.crop}{enlarged}"
    pairs.reading = "; ".join(filter(None, (reduction, pairs.reading)))
    return pairs


class _LowResolution(DerivedSource):
    """A source of images with reduced copies of them."""

    def __init__(self, source: Source, factor: int) -> None:
        super().__init__(source)
        self.factor = factor
        channels, height, width = source.shape
        low = TensorSpec((channels, height // factor, width // factor), source.tensors["image"].dtype)
        self.class_names = ()
        self.tensors = {"image": source.tensors["image"], "low": low}
        self.fingerprint = f"{source.fingerprint} low resolution {factor}"

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        image = self.source.decode(encoded, rows, places, seed)["image"]
        return {"image": image, "low": reduced(image, self.factor)}


def reduced(image: Tensor, factor: int) -> Tensor:
    """Return uint8 or uint16 images (B, C, H, W) at 1 / `factor` of their size, rounded."""
    size = [side // factor for side in image.shape[2:]]
    low = F.interpolate(image.float(), size, mode="bicubic", antialias=True)
    return low.round().clamp(0, torch.iinfo(image.dtype).max).to(image.dtype)
