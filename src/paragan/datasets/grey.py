"""Colour images next to grey copies of themselves, for colourisation.

Source: your files, as in `folder`; the copies are computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.source import DerivedSource, Source, image_specs
from paragan.datasets import folder
from paragan.datasets._options import FolderOptions

CONDITION_CHANNELS = 1  # also of plans without data
_LUMA = (19595, 38470, 7471)  # of 65536, as Pillow converts the inputs of `apply`


@dataclass(frozen=True, kw_only=True)
class Options(FolderOptions):
    """Colour images of a path."""

    channels: Literal[3] = 3
    """Channels of the colour images: red, green and blue."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return `image` (3, height, width) and `condition` (1, height, width) without labels. Errors as in `folder`."""
    return _GreyCopies(folder.source(options, split), options.flip and split == "train")


class _GreyCopies(DerivedSource):
    """A source of images with grey copies of them. flip: mirror half of the samples."""

    def __init__(self, source: Source, flip: bool) -> None:
        super().__init__(source)
        dtype = source.tensors["image"].dtype
        self.tensors = image_specs(source.shape, condition=CONDITION_CHANNELS, dtype=dtype)
        self.class_names = ()
        self.fingerprint = f"{source.fingerprint} grey {flip}"
        self._flip = flip

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        x_BCHW = self.source.decode(encoded, rows, places, seed)["image"]
        if self._flip and places is not None:  # here: the loader leaves pairs alone, whose images turn together
            is_flipped = np.array([rng.key(seed, "flip", int(place)) % 2 for place in places], bool)
            pixels_BCHW = x_BCHW.numpy()  # of the same memory: torch does not flip uint16
            pixels_BCHW[is_flipped] = pixels_BCHW[is_flipped, ..., ::-1]
        return {"image": x_BCHW, "condition": grey(x_BCHW)}


def grey(x_BCHW: Tensor) -> Tensor:
    """Return the luma of uint8 or uint16 images (B, 3, H, W), as (B, 1, H, W), rounded."""
    weights_C11 = torch.tensor(_LUMA).view(3, 1, 1)
    return (((x_BCHW.long() * weights_C11).sum(1, keepdim=True) + (1 << 15)) >> 16).to(x_BCHW.dtype)
