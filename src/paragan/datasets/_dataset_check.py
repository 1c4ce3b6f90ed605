"""Check of all images of a folder, zip or npz file before training (`paragan data check`)."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from PIL import Image

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.option_types import ImageSize
from paragan.datasets import _class_folders, _image_decoding, _image_paths, folder, npz

FEW_IMAGES = 1000
_MAX_CLASS_RATIO = 10
_MAX_LISTED = 10
_SIZES: tuple[int, ...] = get_args(ImageSize)
# largest size suggested by default; larger networks are slow without an accelerator
_DEFAULT_SIDE = 64

Split = Literal["train", "held_out"]


@dataclass
class DatasetReport:
    """Result of the check of a data set.

    images: number of image files. sides: minimum, median and maximum shorter side in pixels.
    """

    path: str
    images: int
    damaged: list[str] = field(default_factory=list)  # one message each, the first few
    num_damaged: int = 0
    sides: tuple[int, int, int] = (0, 0, 0)
    not_square: int = 0
    # colour, grey, palette, alpha, 16-bit, CMYK
    kinds: dict[str, int] = field(default_factory=dict)
    # an image and an earlier equal one, the first few
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    num_duplicates: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # about class folders without images
    size: int = 0
    num_smaller: int = 0
    advice: list[str] = field(default_factory=list)
    command: str = ""


def check_dataset(
    path: str, size: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None
) -> DatasetReport:
    """Decode every image and report problems, advice and the command to train.

    size: the training size; None: chosen from the image sizes. progress: receives the number of
    images done and the total. Raises `DataError` if `path` contains no images.
    """
    if size is not None and size not in _SIZES:
        raise DataError(f"--size {size} is not supported; use one of {', '.join(map(str, _SIZES))}")
    if Path(path).suffix.lower() == ".npz":
        return _check_npz(path)
    files, paths = folder.list_images(path)
    parts = [_image_paths.split_paths(paths, split, 0.1, path) for split in ("train", "held_out")]
    report = DatasetReport(path, len(paths), classes=_classes(parts))
    sides = []
    report.warnings = list(_class_folders.class_folder_warnings(files, paths, parts[0], "train"))
    first_names: dict[bytes, str] = {}
    for number, name in enumerate(map(os.fsdecode, paths), start=1):
        where = files.where(name)
        try:
            image = _image_decoding.decode_image(files.read(name), where)
            _image_decoding.convert_image(image, where, channels=3, background=255)
        except DataError as error:
            _note_damage(report, str(error))
        else:
            sides.append(min(image.size))
            _note_image(report, image)
            _note_duplicate(report, first_names, _digest(image), name)
        progress(number, len(paths))
    _add_advice(report, np.array(sides), size)
    return report


def _classes(parts: list[_image_paths.SplitPaths]) -> dict[str, int]:
    counts = Counter(chain.from_iterable(part.labels.tolist() for part in parts if part.labels is not None))
    return {name: counts[label] for label, name in enumerate(parts[0].class_names)}


def _check_npz(path: str) -> DatasetReport:
    """Check an npz file, whose arrays are validated when it is read."""
    parts = [npz.source(npz.Options(path), split) for split in ("train", "held_out")]
    report = DatasetReport(path, sum(map(len, parts)))
    channels, *sides = parts[0].shape
    report.sides = (min(sides),) * 3
    report.kinds = {"grey" if channels == 1 else "colour": report.images}
    report.size = min(sides)
    first_names: dict[bytes, str] = {}
    counts: Counter[int] = Counter()
    for split, part in zip(("train", "held_out"), parts, strict=True):
        for row in range(len(part)):
            sample = part.fetch([row])
            _note_duplicate(
                report, first_names, hashlib.sha256(sample["image"].numpy().tobytes()).digest(), f"{split} row {row}"
            )
            counts.update(sample["label"].tolist() if "label" in sample else [])
    report.classes = {name: counts[label] for label, name in enumerate(parts[0].class_names)}
    report.advice = _advice(report)
    if sides[0] != sides[1] or sides[0] not in _SIZES:
        size = "x".join(map(str, sides))
        expected = ", ".join(map(str, _SIZES))
        report.advice.insert(0, f"no built-in model supports {size} images: resize them to squares of {expected} px")
        return report
    report.command = _command(report, "data.name=npz")
    return report


def _note_damage(report: DatasetReport, line: str) -> None:
    report.num_damaged += 1
    if len(report.damaged) < _MAX_LISTED:
        report.damaged.append(line)


def _note_image(report: DatasetReport, image: Image.Image) -> None:
    report.not_square += image.width != image.height
    kind = _image_decoding.image_kind(image)
    report.kinds[kind] = report.kinds.get(kind, 0) + 1


def _note_duplicate(report: DatasetReport, first_names: dict[bytes, str], digest: bytes, name: str) -> None:
    if (earlier := first_names.setdefault(digest, name)) is not name:
        report.num_duplicates += 1
        if len(report.duplicates) < _MAX_LISTED:
            report.duplicates.append((name, earlier))


def _digest(image: Image.Image) -> bytes:
    return hashlib.sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).digest()


def _add_advice(report: DatasetReport, sides: np.ndarray, size: int | None) -> None:
    if not len(sides):
        report.advice = ["no image can be decoded: there is nothing to train on"]
        return
    report.sides = (int(sides.min()), int(np.median(sides)), int(sides.max()))
    fitting = [s for s in _SIZES if s <= min(report.sides[1], _DEFAULT_SIDE)]
    report.size = size or max(fitting, default=min(_SIZES))
    report.num_smaller = int((sides < report.size).sum())
    report.advice = _advice(report)
    grey = ["data.channels=1"] if set(report.kinds) == {"grey"} else []
    skip = ["data.damaged=skip"] if report.num_damaged else []
    report.command = _command(report, f"data.size={report.size}", *grey, *skip)


def _advice(report: DatasetReport) -> list[str]:
    """Return advice, one line each, the most important first."""
    lines = []
    if report.num_damaged:
        lines.append(
            f"{_files(report.num_damaged)} damaged: remove or repair them (training stops at the "
            "first one), or pass data.damaged=skip to exclude them"
        )
    if report.images < FEW_IMAGES:
        lines.append(
            f"only {report.images:,} images: D will memorise them; use augmentation "
            "(augment.name=diffaugment, on in the recipe own) and the penalty r1"
        )
    if report.num_duplicates:
        lines.append(f"{_files(report.num_duplicates)} duplicates of others: held-out scores may be too good")
    if report.num_smaller:
        lines.append(
            f"{_files(report.num_smaller)} smaller than {report.size} px: they are enlarged and become blurred"
        )
    if report.not_square and report.size:
        lines.append(
            f"{_files(report.not_square)} not square: they are centre-cropped, or resized with data.crop=squash"
        )
    counts = [(count, name) for name, count in report.classes.items()]
    if counts and min(counts)[0] * _MAX_CLASS_RATIO < max(counts)[0]:
        fewest, rare = min(counts, key=lambda pair: pair[0])
        most, common = max(counts, key=lambda pair: pair[0])
        lines.append(f"classes are imbalanced: {most:,} images of {common!r}, {fewest:,} of {rare!r}")
    return lines


def _files(count: int) -> str:
    return f"{count:,} image is" if count == 1 else f"{count:,} images are"


def _command(report: DatasetReport, *words: str) -> str:
    return f"{program_command()} {shlex.join(['train', 'own', f'data.path={report.path}', *words])}"
