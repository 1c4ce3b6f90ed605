"""The first images of the digits, as a data set: `data={name: benchmarks.digits_subset, num_images: 200}`."""

from __future__ import annotations

from dataclasses import dataclass

from paragan.core.option_types import Count
from paragan.core.source import Source
from paragan.datasets import digits
from paragan.datasets.base.in_memory import InMemorySource


@dataclass(frozen=True)
class Options:
    """Size and number of the images."""

    size: int = 16
    """Height and width in pixels."""
    num_images: Count = 200
    """Training images; the held-out images are those of `digits`."""


def source(options: Options, split: str) -> Source:
    """Return the first training images, which are in no order of classes, or all held-out ones."""
    whole = digits.source(digits.Options(options.size), split)
    if split == "held_out":
        return whole
    rows = slice(options.num_images)
    fingerprint = f"{options.num_images} of {whole.fingerprint}"
    return InMemorySource(whole.images_NCHW[rows], whole.labels_N[rows], whole.class_names, fingerprint)
