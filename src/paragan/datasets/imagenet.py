"""ImageNet (ILSVRC 2012): 1.28 million colour photos of 1,000 classes, and 50,000 held out.

Source: O. Russakovsky et al., "ImageNet large scale visual recognition challenge", IJCV 2015;
https://image-net.org/, whose terms apply. Images are read in place. Centre crops are resized as in
A. Brock et al., "Large scale GAN training for high fidelity natural image synthesis", ICLR 2019.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, ImageSize
from paragan.core.source import Source
from paragan.datasets import _synsets
from paragan.datasets.base.file_readers import FolderReader
from paragan.datasets.base.open_images import describe_missing

_KAGGLE = Path("ILSVRC", "Data", "CLS-LOC")
_CSV = "LOC_val_solution.csv"
_NAMES = ("LOC_synset_mapping.txt", "words.txt")


@dataclass(frozen=True)
class Options:
    """Unpacked folder with train/WNID/*.JPEG and val, or with ILSVRC/Data/CLS-LOC as from Kaggle.

    Images in val are in class folders as in train, or are labelled by Kaggle's
    `LOC_val_solution.csv` in path or val. Class names come from `LOC_synset_mapping.txt` or
    `words.txt`; without these, they are the WNIDs.
    """

    path: FilePath = ""
    """The folder that contains train and val."""
    size: ImageSize = 128
    """Size in pixels to which the centre is resized: a number for squares, or HEIGHTxWIDTH."""
    flip: bool = False
    """Mirror half of the training images, chosen at random in every epoch."""
    resize: Literal["lanczos", "bicubic"] = "lanczos"
    """Filter for resizing: Pillow's `lanczos`, or `bicubic` of torch: faster, a little less sharp."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of shape (3, height, width).

    Labels number the classes in order of their WNIDs, as is customary. Only the file names are
    read; a damaged file raises `DataError` when it is fetched. Raises `DataError` if the folder is
    missing, or images, classes or labels are missing in it.
    """
    base = _find_base(options.path)
    part = "train" if split == "train" else "val"
    where = str(base / part)
    wnids = _class_wnids(base / "train")
    if not (base / part).is_dir():
        raise DataError(f"{base}: no folder 'val' next to train; unpack the validation images, too")
    top = os.fsencode(f"{part}/")
    reader = FolderReader(base)
    paths = reader.images(top)
    if not paths:
        raise DataError(f"{where}: no .JPEG images; unpack the archive")
    texts = [Path(options.path), base, base / "val"]
    if split == "train" or _synsets.has_class_folders(paths, top):
        labels = _synsets.labels_from_folders(paths, top, wnids, where)
    elif solution := _find_file(texts, _CSV):
        labels = _synsets.labels_from_list(paths, _read_solution(solution), wnids, str(solution))
    else:
        raise DataError(f"{where}: the images have no labels; put {_CSV} into {base}, or sort the images into val/WNID")
    if split == "train" and (empty := np.flatnonzero(np.bincount(labels, minlength=len(wnids)) == 0)).size:
        raise DataError(f"{where}: no images of class {wnids[empty[0]]}; unpack its archive")
    text = next((_read_text(file) for name in _NAMES if (file := _find_file(texts, name))), "")
    names = _synsets.class_names(wnids, text)
    return _synsets.source(reader, paths, labels, names, options.size, options.resize)


def _find_base(path: str) -> Path:
    """Return the folder that contains `train`."""
    root = Path(path)
    fix = "pass data.path=DIR of a folder with train/WNID/*.JPEG and val"
    if not path:
        raise DataError(f"data.path is required for dataset 'imagenet'; {fix}")
    if not root.exists():
        raise DataError(f"data.path: {describe_missing(path)}; {fix}")
    if not root.is_dir():
        raise DataError(f"data.path: {path!r} is a file; unpack it first, then {fix}")
    for base in (root / _KAGGLE, root):
        if (base / "train").is_dir():
            return base
    raise DataError(f"data.path: no folder 'train' in {path!r} or in its {_KAGGLE}; {fix}")


def _class_wnids(train: Path) -> tuple[str, ...]:
    """Return the class folders in train; their content is not listed, which would take seconds."""
    try:
        names = sorted(entry.name for entry in os.scandir(train) if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{train}: the folder cannot be listed ({error.strerror}); check its permissions") from None
    folders = [name for name in names if (train / name).is_dir()]
    if not folders and (packed := [name for name in names if name.endswith(".tar")]):
        raise DataError(
            f"{train}: archives such as {packed[0]!r}, but no class folders; unpack each into a "
            f"folder of its name ({packed[0][:-4]}/*.JPEG)"
        )
    return _synsets.check_wnids(folders, str(train))


def _find_file(folders: list[Path], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _read_text(path: Path) -> str:
    return FolderReader(path.parent).read(path.name).decode("utf-8", "replace")


def _read_solution(path: Path) -> dict[str, str]:
    """Return the WNID of each image, from lines of a name and, per object, a WNID and a box."""
    head, *lines = _read_text(path).splitlines() or [""]
    if head != "ImageId,PredictionString":
        raise DataError(
            f"{path}: the first line is {head[:40]!r} instead of 'ImageId,PredictionString'; download the file again"
        )
    wnid_of = {}
    for number, line in enumerate(lines, start=2):
        name, _, objects = line.partition(",")
        if not objects.split():
            raise DataError(
                f"{path}: line {number}: {line[:40]!r} is not of the form NAME,WNID BOX…; download the file again"
            )
        wnid_of[name] = objects.split()[0]
    return wnid_of
