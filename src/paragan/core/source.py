"""Data sources: samples of named tensors, and the declaration of these tensors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TensorSpec:
    """Shape and type of one tensor of one sample."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def is_image(self) -> bool:
        """Whether this is uint8 (C, H, W), which the loader maps from 0…255 to [-1, 1]."""
        return self.dtype == torch.uint8 and len(self.shape) == 3

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor of one sample."""
        return math.prod(self.shape) * self.dtype.itemsize


class Source(ABC):
    """Base class of one split of a data set: samples of named tensors, by index.

    tensors: what each sample consists of; images are called `image`, with `label` and `condition`
    if the data has them. class_names: empty without labels. notices: warnings, a line each: skipped
    images, folders that are no classes. fingerprint: equal for equal data; cheap, not computed from
    all samples. is_decoded: `fetch` reads or decodes files, so that reading ahead in threads pays.

    Several threads may call `fetch`, `read` and `decode` at the same time.
    """

    tensors: Mapping[str, TensorSpec]
    class_names: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    fingerprint: str
    is_decoded: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (channels, height, width) of `image`."""
        channels, height, width = self.tensors["image"].shape
        return channels, height, width

    @property
    def has_pairs(self) -> bool:
        """Whether every image has a `condition` of the same shape, from which it is generated."""
        return "condition" in self.tensors

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Return the tensors of these samples by name, each (B, *shape), new ones: images are flipped in place.

        indices: int64 array (B,). places: positions of the rows in the endless stream of batches,
        int64 (B,); random crops and flips of a training split depend only on the seed and the
        position. None: no crops and flips.
        """

    def read(self, rows: Any) -> Sequence[bytes]:
        """Return what storage holds of these samples, undecoded; empty bytes: nothing to read.

        rows: int64 array (B,).
        """
        return [b""] * len(rows)

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Return the tensors of `fetch` from what `read` returned for these rows."""
        return self.fetch(rows, places, seed)


class EncodedSource(Source):
    """Base class of sources that read files or requests, and decode them.

    `read` may wait for storage, `decode` uses the CPU: stages run them in different threads.
    """

    is_decoded = True

    @abstractmethod
    def read(self, rows: Any) -> Sequence[bytes]: ...

    @abstractmethod
    def decode(
        self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0
    ) -> Mapping[str, Tensor]: ...

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Read and decode these samples."""
        return self.decode(self.read(indices), indices, places, seed)


def image_specs(
    shape: tuple[int, int, int], has_labels: bool = False, has_pairs: bool = False
) -> dict[str, TensorSpec]:
    """Return the declaration of uint8 images of this shape."""
    image = TensorSpec(shape, torch.uint8)
    label = {"label": TensorSpec((), torch.int64)} if has_labels else {}
    return {"image": image, **label, **({"condition": image} if has_pairs else {})}
