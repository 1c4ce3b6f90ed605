"""Folders of small images as people have them."""

import io
import tarfile

import numpy as np
from PIL import Image


def png(number=0):
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), number % 256, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def fill(root, *counts):
    """Files of images: `name/ 3` has 0.png to 2.png in `name`; `x.txt 1` is one file."""
    for number, text in enumerate(counts):
        name, count = text.rsplit(" ", 1)
        for row in range(int(count)):
            path = root / name
            if name.endswith("/") or name == ".":
                path = root / name / f"{number}_{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(row) if path.suffix == ".png" else b"text")
    return root


def put(path, colour=None, size=(8, 8), seed=0, **options):
    """Write an image of one colour, or of noise. size: width and height. Return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    image = Image.fromarray(noise) if colour is None else Image.new("RGB", size, colour)
    image.save(path, **options)
    return path


def add_member(archive, name, content):
    """Add a file to an open tar archive."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
