"""ImageNet (ILSVRC 2012): 1.28 million colour photos of 1,000 classes, and 50,000 held out.

Source: O. Russakovsky et al., "ImageNet large scale visual recognition challenge", IJCV 2015;
https://image-net.org/, whose terms apply. Images are read in place. Centre crops are resized as in
A. Brock et al., "Large scale GAN training for high fidelity natural image synthesis", ICLR 2019.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, ImageSize
from paragan.core.source import Source
from paragan.datasets import _synsets
from paragan.datasets.base.file_readers import FolderReader
from paragan.datasets.base.open_reader import check_path

_KAGGLE = Path("ILSVRC", "Data", "CLS-LOC")
_CSV = "LOC_val_solution.csv"
_NAMES = ("LOC_synset_mapping.txt", "words.txt")


@dataclass(frozen=True)
class Options:
    """Unpacked folder with train/WNID/*.JPEG and val, or with ILSVRC/Data/CLS-LOC as from Kaggle.

    Images in val are in class folders as in train, or are labelled by Kaggle's `LOC_val_solution.csv` in path or val.
    Class names come from `LOC_synset_mapping.txt` or `words.txt`; without these, they are the WNIDs.
    """

    path: FilePath = ""
    """The folder that contains train and val."""
    size: ImageSize = 128
    """Size in pixels to which the centre is resized: a number for squares, or HEIGHTxWIDTH."""
    flip: bool = False  # `build.data` reads it
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
    wnids = _class_wnids(base / "train")
    part = "train" if split == "train" else "val"
    if not (base / part).is_dir():
        raise DataError(f"{base}: no folder 'val' next to train; unpack the validation images, too")
    reader = FolderReader(base)
    top = os.fsencode(f"{part}/")
    paths = reader.find(top)
    if not paths:
        raise DataError(f"{base / part}: no .JPEG images; unpack the archive")
    texts = [folder / name for name in (*_NAMES, _CSV) for folder in (Path(options.path), base, base / "val")]
    texts = [text for text in texts if text.is_file()]
    words = next((_read_text(text) for text in texts if text.name != _CSV), "")
    read_list = None if split == "train" else partial(_read_solution, texts, base)
    images = _synsets.source(reader, paths, top, wnids, read_list, words, size=options.size, resize=options.resize)
    if split == "train" and 0 in (sizes := images.class_sizes()):
        raise DataError(f"{base / part}: no images of class {wnids[sizes.index(0)]}; unpack its archive")
    return images


def _find_base(path: str) -> Path:
    fix = "pass data.path=DIR of a folder with train/WNID/*.JPEG and val"
    check_path(path, "imagenet", fix=fix)
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"data.path: {path!r} is a file; unpack it first, then {fix}")
    base = next((base for base in (root / _KAGGLE, root) if (base / "train").is_dir()), None)
    if base is None:
        raise DataError(f"data.path: no folder 'train' in {path!r} or in its {_KAGGLE}; {fix}")
    return base


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


def _read_text(path: Path) -> str:
    return FolderReader(path.parent).read(path.name).decode("utf-8", "replace")


def _read_solution(texts: list[Path], base: Path) -> _synsets.WnidList:
    """Return the WNID of each image, from lines of a name and, per object, a WNID and a box."""
    path = next((text for text in texts if text.name == _CSV), None)
    if path is None:
        raise DataError(
            f"{base / 'val'}: the images have no labels; put {_CSV} into {base}, or sort the images into val/WNID"
        )
    head, *lines = _read_text(path).splitlines() or [""]
    if head != "ImageId,PredictionString":
        raise DataError(
            f"{path}: the first line is {head[:40]!r} instead of 'ImageId,PredictionString'; download the file again"
        )
    return _synsets.read_lines(lines, (r"([^,]*),\s*(\S+)", "of the form NAME,WNID BOX…"), str(path), first=2)
