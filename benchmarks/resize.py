"""Decoding and resizing: CPU per image of `data.resize=lanczos` and `bicubic` against a plain Pillow loop.

python -m benchmarks.resize [--pairs 21]

JPEG files are smooth noise, read from memory, as one batch of 64 of one size, at one thread. "one by one": torch
resizes each image by a call of its own instead of several at once.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from benchmarks.paired_timing import compare, keep
from paragan.core.source import Source
from paragan.datasets import _batched_resize, _image_source
from paragan.loading import open_images

BATCH = 64
SHAPES = ((500, 375, 64), (256, 256, 128), (96, 80, 64), (64, 64, 32))  # width, height, size


def make(root: Path, width: int, height: int) -> Path:
    """A folder of JPEG files."""
    noise = np.random.default_rng(0).integers(0, 256, (BATCH * 2, 8, 8, 3), np.uint8)
    root.mkdir()
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).resize((width, height)).save(root / f"{number:03}.jpg", quality=90)
    return root


def pillow_loop(encoded: list[bytes], size: int) -> None:
    """What a loop without any library does: equal pixels of the default."""
    images = []
    for data in encoded:
        with Image.open(io.BytesIO(data)) as file:
            image = ImageOps.fit(file.convert("RGB"), (size, size), Image.Resampling.LANCZOS)
        images.append(torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()))
    torch.stack(images)


def ours(source: Source, encoded: list[bytes], group_bytes: int = _batched_resize._GROUP_BYTES) -> None:
    """The same by the package."""
    _batched_resize._GROUP_BYTES = group_bytes
    source.decode(encoded, range(BATCH))


def main() -> None:
    """Measure, and write the results."""
    _image_source.CACHE_BYTES = 0  # every image is decoded
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=21)
    pairs = parser.parse_args().pairs
    found = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for width, height, size in SHAPES:
            folder = make(root / f"{width}x{height}", width, height)
            lanczos = open_images(folder, size=size)
            bicubic = open_images(folder, size=size, resize="bicubic")
            encoded = list(lanczos.read(range(BATCH)))
            loop = partial(pillow_loop, encoded, size)
            at_once = partial(ours, bicubic, encoded)
            row = f"{width}x{height} to {size}"
            found[f"{row}: Pillow loop / lanczos"] = compare(loop, partial(ours, lanczos, encoded), pairs)
            found[f"{row}: Pillow loop / bicubic"] = compare(loop, at_once, pairs)
            found[f"{row}: one by one / bicubic"] = compare(partial(at_once, group_bytes=1), at_once, pairs)
    keep("resize", found, f"seconds of {BATCH} images; above 1: the second needs less")


if __name__ == "__main__":
    main()
