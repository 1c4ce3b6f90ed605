"""Synthetic images, drawn on demand: simple shapes, or dots at positions of a known distribution.

Source: generated here. The ring of 8 and the grid of 25 Gaussians are standard tests for missing modes: L. Metz, B.
Poole, D. Pfau, J. Sohl-Dickstein, "Unrolled generative adversarial networks", ICLR 2017, section 3.1; A. Srivastava et
al., "VEEGAN", NeurIPS 2017, section 4.1. There a sample is a point, here an image of a dot at that point, so that every
model and metric for images can be tested.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core import rng
from paragan.core.option_types import Interval, Natural
from paragan.core.source import Source, image_specs
from paragan.datasets.base.in_memory import compute_fingerprint

_RING = 8
_GRID = 5
_SPREAD = 0.02  # standard deviation of a Gaussian; the image is 2 units wide
_HELD_OUT_EVERY = 10

Plane = NDArray[np.floating]


@dataclass(frozen=True)
class Options:
    """Kind, size and number of the synthetic images."""

    kind: Literal["shapes", "ring", "grid"] = "shapes"
    """`shapes`: coloured shapes of five classes.

    `ring`, `grid`: a grey dot whose centre is drawn from a mixture of 8 or 25 Gaussians.
    """
    size: Literal[8, 16, 32, 64] = 32
    """Height and width in pixels."""
    num_images: Annotated[int, Interval(ge=20, le=2**40)] = 50_000
    """Number of training images; a tenth as many are held out."""
    seed: Natural = 0
    """Seed of the images."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return shapes (3, size, size) or dots (1, size, size); classes are shapes or Gaussians."""
    return SyntheticImages(options, split)


class SyntheticImages(Source):
    """A `Source` of drawn images: row i depends only on the options, the split and i."""

    def __init__(self, options: Options, split: str) -> None:
        self._options = options
        self._split = split
        self._count = options.num_images if split == "train" else options.num_images // _HELD_OUT_EVERY
        dots = {"ring": _RING, "grid": _GRID**2}.get(options.kind)
        self.class_names = tuple(_DISTANCES) if dots is None else tuple(map(str, range(dots)))
        self.tensors = image_specs((3 if dots is None else 1, options.size, options.size), has_labels=True)
        self.fingerprint = compute_fingerprint("synthetic", options, split)
        axis = (np.arange(options.size) + 0.5) / options.size * 2 - 1
        self._x_HW, self._y_HW = np.meshgrid(axis, axis)

    def __len__(self) -> int:
        return self._count

    def class_sizes(self) -> list[int]:
        """Return proportions, of which all are equal: classes are drawn with equal probability."""
        return [1] * len(self.class_names)

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return uint8 images and int64 labels. indices: int64 array (B,) in [0, N)."""
        rows = [self._row(operator.index(row)) for row in indices]
        pixels_BCHW = np.stack([pixels for pixels, _ in rows]) if rows else np.empty((0, *self.shape), np.uint8)
        labels_B = torch.tensor([label for _, label in rows], dtype=torch.int64)
        return {"image": torch.from_numpy(pixels_BCHW), "label": labels_B}

    def _row(self, row: int) -> tuple[NDArray[np.uint8], int]:
        if not 0 <= row < self._count:
            raise IndexError(f"row {row} of {self._count}")
        key = rng.key("synthetic", self._options.kind, self._options.seed, self._split, row)
        draw = np.random.Generator(np.random.Philox(key=key))
        label = int(draw.integers(len(self.class_names)))
        pixels = self._shape(draw, label) if self._options.kind == "shapes" else self._dot(draw, label)
        return pixels.round().astype(np.uint8), label

    def _shape(self, draw: np.random.Generator, label: int) -> Plane:
        """Draw a shape of random position, size, rotation and colour on a plain background."""
        x, y = draw.uniform(-0.3, 0.3, 2)
        radius = draw.uniform(0.35, 0.65)
        angle = draw.uniform(0, 2 * np.pi)
        ground = draw.uniform(0, 255, 3)
        colour = (ground + draw.uniform(96, 160, 3)) % 256  # at least 96 levels away, also around 256: visible
        u = (self._x_HW - x) / radius
        v = (self._y_HW - y) / radius
        distance = _DISTANCES[self.class_names[label]](
            np.cos(angle) * u + np.sin(angle) * v,
            np.cos(angle) * v - np.sin(angle) * u,
        )
        outside = distance * radius * self._options.size / 2  # pixels
        covered = np.clip(0.5 - outside, 0, 1)
        return ground[:, None, None] + covered * (colour - ground)[:, None, None]

    def _dot(self, draw: np.random.Generator, label: int) -> Plane:
        """Draw a white dot on black, a Gaussian of standard deviation 0.1, but of at least 0.75 pixels."""
        x, y = _gaussian_centre(self._options.kind, label) + draw.normal(0, _SPREAD, 2)
        exponent_HW = ((self._x_HW - x) ** 2 + (self._y_HW - y) ** 2) / (2 * max(0.1, 1.5 / self._options.size) ** 2)
        return 255 * np.exp(-exponent_HW)[None]


def _gaussian_centre(kind: str, label: int) -> Plane:
    """Return the centre of a Gaussian, in an image that spans [-1, 1]."""
    if kind == "ring":
        angle = 2 * np.pi * label / _RING
        return 0.7 * np.array([np.cos(angle), np.sin(angle)])
    return (np.array(divmod(label, _GRID)) / (_GRID - 1) * 2 - 1) * 0.75


def _triangle(u: Plane, v: Plane) -> Plane:
    normals = np.pi * np.array([0.5, 7 / 6, 11 / 6])  # directions of the three sides
    return np.maximum.reduce([np.cos(angle) * u + np.sin(angle) * v for angle in normals]) - 0.5


def _cross(u: Plane, v: Plane) -> Plane:
    u = np.abs(u)
    v = np.abs(v)
    return np.minimum(np.maximum(u - 0.3, v - 1), np.maximum(v - 0.3, u - 1))


# Signed distance to each shape by coordinates in units of the radius, negative inside. Not the `ring` of dots.
_DISTANCES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "circle": lambda u, v: np.hypot(u, v) - 1,
    "cross": _cross,
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.75) - 0.25,
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) - 0.8,
    "triangle": _triangle,
}
