"""A look at every picture of a folder, zip or npz file before anything is trained on it."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import numpy as np
from PIL import Image

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.datasets import _class_folders, _image_decoding, _image_paths, folder, npz

FEW_IMAGES = 1000
_UNEVEN = 10
_SHOWN = 10
_MODEL_SIDES = (8, 16, 32, 64, 128)
_USUAL_SIDE = 64  # the default suggestion never asks for more; larger nets are slow without an accelerator

Split = Literal["train", "held_out"]


@dataclass
class DatasetReport:
    """images: files that look like pictures. sides: the shorter sides in pixels, minimum, median, maximum."""

    path: str
    images: int
    damaged: list[str] = field(default_factory=list)  # a line each, the first few
    num_damaged: int = 0
    sides: tuple[int, int, int] = (0, 0, 0)
    not_square: int = 0
    kinds: dict[str, int] = field(default_factory=dict)  # colour, grey, palette, alpha, 16-bit, CMYK
    duplicates: list[tuple[str, str]] = field(default_factory=list)  # a picture and an earlier one, the first few
    num_duplicates: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # of class folders without images
    size: int = 0
    num_smaller: int = 0
    advice: list[str] = field(default_factory=list)
    command: str = ""


def check_dataset(
    path: str, size: int | None = None, say: Callable[[int, int], None] = lambda done, total: None
) -> DatasetReport:
    """Decode every picture. size: the one to train with, the usual one for these pictures unless given.

    say: is told how many are done, of how many. Raises `DataError` where `path` holds no pictures at all.
    """
    sizes = get_args(get_type_hints(folder.Options)["size"])
    if size is not None and size not in sizes:
        raise DataError(f"--size: found {size}, expected one of {', '.join(map(str, sizes))}")
    if Path(path).suffix.lower() == ".npz":
        return _arrays(path)
    files, paths = folder.list_images(path)
    parts = [_image_paths.split_paths(paths, split, 0.1, path) for split in ("train", "held_out")]
    found, sides = DatasetReport(path, len(paths), classes=_classes(parts)), []
    found.warnings = list(_class_folders.class_folder_warnings(files, paths, parts[0], "train"))
    seen: dict[bytes, str] = {}
    for number, name in enumerate(map(os.fsdecode, paths), start=1):
        where = files.where(name)
        try:
            image = _image_decoding.decode_image(files.read(name), where)
            _image_decoding.convert_image(image, where, channels=3, background=255)
        except DataError as error:
            _note_damage(found, str(error))
        else:
            sides.append(min(image.size))
            _note(found, image)
            _note_duplicate(found, seen, _digest(image), name)
        say(number, len(paths))
    _judge(found, np.array(sides), size, sizes)
    return found


def _classes(parts: list[_image_paths.SplitPaths]) -> dict[str, int]:
    counts = Counter(label for part in parts if part.labels is not None for label in part.labels.tolist())
    return {name: counts[label] for label, name in enumerate(parts[0].class_names)}


def _arrays(path: str) -> DatasetReport:
    """An npz file is held to its form when it is read; what remains is what it holds."""
    parts = [npz.source(npz.Options(path), split) for split in ("train", "held_out")]
    found = DatasetReport(path, sum(map(len, parts)))
    channels, *sides = parts[0].shape
    found.sides = (min(sides),) * 3
    found.kinds = {"grey" if channels == 1 else "colour": found.images}
    found.size = min(sides)
    seen: dict[bytes, str] = {}
    counts: Counter[int] = Counter()
    for split, part in zip(("train", "held_out"), parts, strict=True):
        for row in range(len(part)):
            x_1CHW, y_1 = part.fetch([row])
            _note_duplicate(found, seen, hashlib.sha256(x_1CHW.numpy().tobytes()).digest(), f"{split} row {row}")
            counts.update([] if y_1 is None else y_1.tolist())
    found.classes = {name: counts[label] for label, name in enumerate(parts[0].class_names)}
    found.advice = _advice(found)
    if sides[0] != sides[1] or sides[0] not in _MODEL_SIDES:
        size = "x".join(map(str, sides))
        expected = ", ".join(map(str, _MODEL_SIDES))
        found.advice.insert(0, f"images of {size} fit no model of ours: bring them to squares of {expected} px")
        return found
    found.command = _command(found, "data.name=npz")
    return found


def _note_damage(found: DatasetReport, line: str) -> None:
    found.num_damaged += 1
    if len(found.damaged) < _SHOWN:
        found.damaged.append(line)


def _note(found: DatasetReport, image: Image.Image) -> None:
    found.not_square += image.width != image.height
    kind = _image_decoding.image_kind(image)
    found.kinds[kind] = found.kinds.get(kind, 0) + 1


def _note_duplicate(found: DatasetReport, seen: dict[bytes, str], digest: bytes, name: str) -> None:
    if (earlier := seen.setdefault(digest, name)) is not name:
        found.num_duplicates += 1
        if len(found.duplicates) < _SHOWN:
            found.duplicates.append((name, earlier))


def _digest(image: Image.Image) -> bytes:
    return hashlib.sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).digest()


def _judge(found: DatasetReport, sides: np.ndarray, size: int | None, sizes: tuple[int, ...]) -> None:
    if not len(sides):
        found.advice = ["no picture can be read: nothing to train on"]
        return
    found.sides = (int(sides.min()), int(np.median(sides)), int(sides.max()))
    fitting = [s for s in sizes if s <= min(found.sides[1], _USUAL_SIDE)]
    found.size = size or max(fitting, default=min(sizes))
    found.num_smaller = int((sides < found.size).sum())
    found.advice = _advice(found)
    grey = ["data.channels=1"] if set(found.kinds) == {"grey"} else []
    skip = ["data.damaged=skip"] if found.num_damaged else []
    found.command = _command(found, f"data.size={found.size}", *grey, *skip)


def _advice(found: DatasetReport) -> list[str]:
    """What to think about, a line each, the gravest first."""
    lines = []
    if found.num_damaged:
        lines.append(
            f"{_files(found.num_damaged)} damaged: remove or mend; training stops at the first, "
            "data.damaged=skip leaves them out"
        )
    if found.images < FEW_IMAGES:
        lines.append(
            f"only {found.images:,} pictures: D learns them by heart; switch on augmentation "
            "(augment.name=diffaugment; the recipe own has it on) and keep the penalty r1"
        )
    if found.num_duplicates:
        lines.append(f"{_files(found.num_duplicates)} there more than once: held-out scores may look too good")
    if found.num_smaller:
        lines.append(f"{_files(found.num_smaller)} smaller than {found.size} px: enlarged they are blurred")
    if found.not_square and found.size:
        lines.append(f"{_files(found.not_square)} not square: the middle is cut out (data.crop=squash squeezes them)")
    counts = found.classes.values()
    if counts and min(counts) * _UNEVEN < max(counts):
        rare, common = min(found.classes, key=found.classes.get), max(found.classes, key=found.classes.get)  # type: ignore[arg-type]
        lines.append(
            f"classes are uneven: {found.classes[common]:,} of {common!r}, {found.classes[rare]:,} of {rare!r}"
        )
    return lines


def _files(count: int) -> str:
    return f"{count:,} picture is" if count == 1 else f"{count:,} pictures are"


def _command(found: DatasetReport, *words: str) -> str:
    return f"{program_command()} {shlex.join(['train', 'own', f'data.path={found.path}', *words])}"
