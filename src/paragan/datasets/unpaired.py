"""Images of two kinds without pairs, for translation between them.

Source: your files, as in `folder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError, DataError
from paragan.core.source import EncodedSource, Source, TensorSpec
from paragan.datasets import folder
from paragan.datasets._image_source import ImageSource
from paragan.datasets._options import FolderOptions


@dataclass(frozen=True, kw_only=True)
class Options(FolderOptions):
    """A folder, .zip or .tar file with a sub-folder of images for each kind, A and B."""

    a: str | None = None
    """Name of A's sub-folder, such as `trainA`; null: the first of two."""
    b: str | None = None
    """Name of B's sub-folder; null: the second of two."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return `both` (channels, height, 2 * width), uint8: an image of A at the left, one of B at the right.

    An epoch has every image of A once; each is next to a random image of B, in the held-out split
    next to the one of its number. Raises `DataError` as `folder` does, and without the two kinds.
    """
    if options.flip:
        raise ConfigError("data.flip=true would exchange A and B; use data.flip=false")
    images = folder.source(replace(options, classes="folders"), split)
    names = images.class_names
    if options.a is None and options.b is None and len(names) == 2:
        chosen = names
    elif options.a in names and options.b in names and options.a != options.b:
        chosen = (options.a, options.b)
    else:
        listed = ", ".join(names) or "none"
        raise DataError(
            f"data.path={options.path}: data unpaired needs two sub-folders of images, but these are there: {listed}; "
            "pass data.a=NAME data.b=NAME"
        )
    rows = [np.flatnonzero(images.labels == names.index(name)) for name in chosen]
    for name, kind_rows in zip(chosen, rows, strict=True):
        if not len(kind_rows):
            part = "training" if split == "train" else "held-out"
            raise DataError(f"data.path={options.path}: {name!r} has no {part} images; pass another data.held_out")
    return _Unpaired(images, rows[0], rows[1], split == "train")


class _Unpaired(EncodedSource):
    """Rows of A in order, next to rows of B."""

    def __init__(self, images: ImageSource, a: NDArray[Any], b: NDArray[Any], is_random: bool) -> None:
        self.images = images
        self.a = a
        self.b = b
        self.is_random = is_random
        channels, height, width = images.shape
        self.tensors = {"both": TensorSpec((channels, height, 2 * width), torch.uint8)}
        self.notices = images.notices
        self.fingerprint = f"{images.fingerprint} unpaired {len(a)} {len(b)} {a[0]} {b[0]}"

    def __len__(self) -> int:
        return len(self.a)

    def read(self, rows: Any) -> Sequence[bytes]:
        numbers = np.asarray(rows)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"rows {numbers.min()} to {numbers.max()} of {len(self)}")
        return self.images.read(self.a[numbers])

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        numbers = np.asarray(rows)
        left = self.images.decode(encoded, self.a[numbers], places, seed)["image"]
        is_drawn = self.is_random and places is not None
        partners = [rng.key(seed, "unpaired", int(place)) for place in places] if is_drawn else numbers
        of_b = self.b[np.array([int(number % len(self.b)) for number in partners])]
        right = self.images.fetch(of_b, places, seed)["image"]
        return {"both": torch.cat([left, right], 3)}
