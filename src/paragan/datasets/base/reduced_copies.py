"""Folders that hold the images of another folder at a fraction of their size, as sets for super-resolution do."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from contextlib import suppress
from itertools import permutations

import numpy as np
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import _image_decoding
from paragan.datasets.base.file_readers import FileReader

_SCALE = re.compile(rb"[_-]?x[2-8]$", re.IGNORECASE)  # at the end of a name: 0001x4.png
_MAX_FOLDERS = 64  # that are opened
_MAX_DISTANCE = 16.0  # of levels of an image from those of a reduced one, also if it is noisy


def without_reduced_copies(files: FileReader, paths: list[bytes]) -> list[bytes]:
    """Return the paths outside of folders of reduced copies, which are counted among the ignored files.

    The first image of a folder decides: it has the name of that of another folder, perhaps with `x4`, an
    exact fraction of its height and width, and its content.
    """
    first: dict[bytes, bytes] = {}
    for path in paths:
        first.setdefault(path[: path.rfind(b"/") + 1], path)
    if len(first) > _MAX_FOLDERS:
        return paths
    folders_of = defaultdict(list)  # by the name of their first image, without the scale
    for folder, path in first.items():
        folders_of[_SCALE.sub(b"", os.path.splitext(path[len(folder) :])[0])].append(folder)
    for folders in folders_of.values():
        if len(folders) == 1:
            continue
        sizes = {folder: _size(files, first[folder]) for folder in folders}
        for low, high in permutations(folders, 2):
            factor = sizes[high][0] // max(sizes[low][0], 1)
            is_fraction = factor > 1 and (factor * sizes[low][0], factor * sizes[low][1]) == sizes[high]
            if is_fraction and _distance(files, first[low], first[high]) < _MAX_DISTANCE:
                others = [path for path in paths if path[: path.rfind(b"/") + 1] != low]
                kind = f"images in {os.fsdecode(low)}, reduced copies of those in {os.fsdecode(high)}"
                files.ignored[kind] = len(paths) - len(others)
                paths = others
    return paths


def _size(files: FileReader, path: bytes) -> tuple[int, int]:
    """Return width and height; 0 of a damaged image, which is reported when it is fetched."""
    with suppress(DataError), _image_decoding.raise_image_errors(""):
        return _image_decoding.open_image(files.read(os.fsdecode(path)), "").size
    return 0, 0


def _distance(files: FileReader, low: bytes, high: bytes) -> float:
    """Return the mean distance of the grey levels of an image from those of another, reduced."""
    with suppress(DataError):
        images = [_image_decoding.decode_image(files.read(os.fsdecode(path)), "").convert("L") for path in (low, high)]
        reduced = np.asarray(images[1].resize(images[0].size, Image.Resampling.BOX), float)
        return float(np.abs(reduced - np.asarray(images[0])).mean())
    return math.inf
