"""Pairs of image files for tests: written, archived, read by Pillow and by the data set."""

import tarfile
import zipfile

import numpy as np
from PIL import Image, ImageOps

from paragan.datasets import paired


def picture(number, size=(24, 24), mode="RGB"):
    draws = np.random.default_rng(number)
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    return Image.fromarray(draws.integers(0, 256, shape, dtype=np.uint8))


def write(root, layout, numbers, modes=("RGB", "RGB"), sizes=((24, 24), (24, 24))):
    """Write pairs; return the paths of both files of each."""
    paths = [[root / side.format(number) for side in layout] for number in numbers]
    for number, both in zip(numbers, paths, strict=True):
        for side, path in enumerate(both):
            path.parent.mkdir(parents=True, exist_ok=True)
            image_format = None if path.suffix[1:].isalpha() else "PNG"
            picture(2 * number + side, sizes[side], modes[side]).save(path, image_format)
    return paths


def source(root, split="train", **options):
    options = {"size": 16, "load_size": 16, "flip": False, "path": str(root)} | options
    return paired.source(paired.Options(**options), split)


def fetch_all(root, **options):
    sources = (source(root, split, **options) for split in ("train", "held_out"))
    return [data.fetch(range(len(data))) for data in sources]


def by_pillow(path, mode="RGB", size=(16, 16)):
    image = ImageOps.fit(Image.open(path).convert(mode), size, Image.Resampling.BICUBIC)
    array = np.asarray(image)
    return array[None] if mode == "L" else array.transpose(2, 0, 1)


def check_pairs(root, paths):
    """Check that both splits together have just these pairs of files; return images B by the bytes of images A."""
    pixels = {}
    for split in ("train", "held_out"):
        for x, condition in zip(*source(root, split).fetch(range(len(source(root, split)))).values(), strict=True):
            pixels[condition.numpy().tobytes()] = x.numpy()
    assert len(pixels) == len(paths)
    for a, b in paths:
        assert np.array_equal(pixels[by_pillow(a).tobytes()], by_pillow(b))
    return pixels


def archived(root, kind):
    if kind == "folder":
        return root
    path = root.parent / f"pairs.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in root.rglob("*.*"):
                archive.write(file, file.relative_to(root))
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
            archive.add(root, ".")
    return path
