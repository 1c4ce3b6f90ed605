"""ImageNet (ILSVRC 2012): 1.28 million colour photos of 1,000 classes, and 50,000 held out, read where they lie.

Source: O. Russakovsky et al., "ImageNet large scale visual recognition challenge", IJCV 2015; https://image-net.org/,
whose terms apply. The square in the middle, resized, is what A. Brock et al., "Large scale GAN training for high
fidelity natural image synthesis", ICLR 2019, train on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

import numpy as np

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, Natural
from paragan.core.protocols import Source
from paragan.datasets import _image_paths, _synsets
from paragan.datasets._image_files import FolderReader

_KAGGLE = ("ILSVRC", "Data", "CLS-LOC")
_DEVKIT = Path("ILSVRC2012_devkit_t12", "data")
_CSV = "LOC_val_solution.csv"
_TRUTH, _SYNSETS = "ILSVRC2012_validation_ground_truth.txt", "map_clsloc.txt"
_NAMES = ("LOC_synset_mapping.txt", "words.txt")


@dataclass(frozen=True)
class Options:
    """A folder of train/WNID/*.JPEG and val, unpacked, or one with ILSVRC/Data/CLS-LOC/train, as Kaggle's.

    Images in val are in folders as those in train are, or are labelled by one of these files in path or val:
    `LOC_val_solution.csv`; or `ILSVRC2012_validation_ground_truth.txt` with `map_clsloc.txt`, which maps its numbers to
    WNIDs. Classes are named as in `LOC_synset_mapping.txt` or `words.txt`, or else by WNID.
    """

    path: FilePath = ""
    """The folder that holds train and val."""
    size: Literal[8, 16, 32, 64, 128, 256, 512] = 128
    """Height and width in pixels; the largest centred square is resized to it."""
    cache_mb: Natural = 128
    """MiB of decoded images held in memory, per split."""
    flip: bool = False
    """Mirror half of the training images, drawn anew in every epoch."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """(3, size, size). Labels count the classes in order of their WNIDs, as everybody's do.

    Only the names are read now; a damaged file is a `DataError` when it is fetched.
    Raises `DataError` where there is no such folder, or pictures, classes or labels are missing in it.
    """
    base = _find_base(options.path)
    part = "train" if split == "train" else "val"
    wnids = _class_wnids(base / "train")
    if not (base / part).is_dir():
        raise DataError(f"{base}: found no folder 'val', expected the pictures held out beside train; unpack them, too")
    top = os.fsencode(f"{part}/")
    paths = [top + path for path in _image_paths.find_images(base / part)]
    if not paths:
        raise DataError(f"{base / part}: found no picture, expected .JPEG files; unpack the archive")
    if split == "train" or _synsets.has_class_folders(paths, top):
        labels = _synsets.labels_from_folders(paths, top, wnids, str(base / part))
    else:
        labels = _labels_from_files(paths, wnids, base)
    if split == "train" and (empty := np.flatnonzero(np.bincount(labels, minlength=len(wnids)) == 0)).size:
        raise DataError(f"{base / part}: found no picture of {wnids[empty[0]]}, expected some of each class; unpack it")
    text = next((_read_text(file) for name in _NAMES if (file := _find_file(base, name))), "")
    return _synsets.source(
        FolderReader(base), paths, labels, _synsets.class_names(wnids, text), options.size, options.cache_mb
    )


def _find_base(path: str) -> Path:
    """The folder that `train` lies in."""
    root, layout = Path(path), "expected ImageNet's folder, with train/WNID/*.JPEG and val"
    if not path or not root.exists():
        found = f"no folder {path!r}" if path else "nothing"
        raise DataError(f"data.path: found {found}, {layout}; give data.path=FOLDER")
    if not root.is_dir():
        raise DataError(f"data.path: found a file, {path!r}, {layout}; unpack it first and give data.path=FOLDER")
    ways = (root.joinpath(*_KAGGLE[start:]) for start in (3, 2, 1, 0))
    base = next((way for way in ways if (way / "train").is_dir()), None)
    if base is None:
        kaggle = "/".join(_KAGGLE)
        raise DataError(
            f"data.path: found no folder 'train' in {path!r} (nor in its {kaggle}), {layout}; unpack it there "
            "or give data.path=FOLDER"
        )
    return base


def _class_wnids(train: Path) -> tuple[str, ...]:
    """The folders in train. What is in them is not looked at: that takes seconds, and held-out pictures need it not."""
    try:
        names = sorted(entry.name for entry in os.scandir(train) if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{train}: found a folder that cannot be listed ({error.strerror}); check it") from None
    folders = [name for name in names if (train / name).is_dir()]
    if not folders and (packed := [name for name in names if name.endswith(".tar")]):
        found = f"{packed[0]!r} and no folder"
        raise DataError(f"{train}: found {found}, expected {packed[0][:-4]}/*.JPEG; unpack each into such a folder")
    return _synsets.check_wnids(folders, str(train))


def _find_file(base: Path, name: str) -> Path | None:
    """The file of this name: with the pictures, in val, or where Kaggle's and the challenge's archives have it."""
    whole = Path(os.path.abspath(base))
    tops = [base, whole.parents[2]] if whole.parts[-3:] == _KAGGLE else [base]
    folders = [base / "val", *tops, *(top / _DEVKIT for top in tops)]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _read_text(path: Path) -> str:
    return FolderReader(path.parent).read(path.name).decode("utf-8", "replace")


def _labels_from_files(paths: list[bytes], wnids: tuple[str, ...], base: Path) -> _synsets.Labels:
    """Labels of pictures that lie side by side."""
    if solution := _find_file(base, _CSV):
        return _synsets.labels_from_list(paths, _read_solution(solution), wnids, str(solution))
    if truth := _find_file(base, _TRUTH):
        return _synsets.labels_from_list(paths, _read_ground_truth(truth, paths), wnids, str(truth))
    raise DataError(
        f"{base / 'val'}: found pictures in no folders, and neither {_CSV} nor {_TRUTH}, expected one of these in "
        f"{base}; put it there, or sort the pictures into val/WNID"
    )


def _read_solution(path: Path) -> dict[str, str]:
    """By picture: lines of its name and, for every object in it, WNID and box. All objects of a picture are alike."""
    head, *lines = _read_text(path).splitlines() or [""]
    if head != "ImageId,PredictionString":
        found = repr(head[:40])
        raise DataError(f"{path}: found {found}, expected 'ImageId,PredictionString' first; get the file again")
    wnid_of = {}
    for number, line in enumerate(lines, start=2):
        name, _, told = line.partition(",")
        if not told.split():
            found = repr(line[:40])
            raise DataError(f"{path}: line {number}: found {found}, expected NAME,WNID BOX…; get the file again")
        wnid_of[name] = told.split()[0]
    return wnid_of


def _read_ground_truth(path: Path, paths: list[bytes]) -> dict[str, str]:
    """By picture: a line for each, in order of their names, has the number of its class in the challenge."""
    told = path.with_name(_SYNSETS)
    if not told.is_file():
        raise DataError(
            f"{told}: found no such file, expected it beside {_TRUTH}: lines of WNID, number and name; get it from a "
            "later devkit, or sort the pictures into val/WNID"
        )
    wnid_of = {words[1]: words[0] for line in _read_text(told).splitlines() if len(words := line.split()) > 1}
    numbers = _read_text(path).split()
    if len(numbers) != len(paths):
        found = f"labels of {len(numbers):,} pictures"
        raise DataError(f"{path}: found {found}, expected {len(paths):,}, as there are; get the pictures and it again")
    if unknown := next((number for number in numbers if number not in wnid_of), None):
        raise DataError(f"{path}: found the class {unknown!r}, expected one of {told.name}; get both files again")
    return {PurePath(os.fsdecode(name)).stem: wnid_of[number] for name, number in zip(paths, numbers, strict=True)}
