"""Check of all images of a folder, zip or tar file before training (`paragan data check`)."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paragan.core.addresses import is_url
from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.option_types import height_and_width, size_of
from paragan.core.source import untrained_classes
from paragan.datasets._image_values import ValueSummary, read_values
from paragan.datasets._options import PixelOptions
from paragan.datasets._pair_files import describe_sides
from paragan.datasets._tiff_bands import Values
from paragan.datasets.base.open_images import describe_missing, open_encoded_images
from paragan.datasets.base.shard_images import ShardImages
from paragan.storage.shard_folder import ShardFolder, has_shards

FEW_IMAGES = 1000
_MAX_CLASS_RATIO = 10
# sizes suggested by default; larger networks are slow without an accelerator
_SUGGESTED = (8, 12, 16, 24, 32, 48, 64)


@dataclass(kw_only=True)
class DatasetReport:
    """Result of the check of a data set.

    images: number of image files. damaged: a message each. sides: minimum, median and maximum
    shorter side in pixels. num_halves: images twice as wide as high, as pairs are. kinds: images by
    kind: colour, grey, palette, alpha, 16-bit, CMYK. pairs: of files in two folders, and those without a
    partner, in words. duplicates: an image and the first that equals
    kind: colour, grey, alpha, 16-bit. duplicates: an image and the first that equals
    it. warnings: about class folders without images. size: to train with. num_smaller: images that
    are enlarged to it.
    """

    path: str
    images: int
    damaged: list[str] = field(default_factory=list)
    sides: tuple[int, int, int] = (0, 0, 0)
    not_square: int = 0
    num_halves: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    pairs: str = ""
    recipe: str = "own"
    size: int | str = 0
    num_smaller: int = 0
    advice: list[str] = field(default_factory=list)
    command: str = ""


def check_dataset(
    path: str, size: int | str | None = None, progress: Callable[[int, int], None] = lambda done, total: None
) -> DatasetReport:
    """Decode every image and report problems, advice and the command to train.

    size: the training size; None: chosen from the image sizes. progress: receives the number of
    images done and the total. Raises `DataError` if `path` contains no images.
    """
    size = parse_size(size)
    if path and not is_url(path) and not Path(path).exists():
        raise DataError(f"{describe_missing(path)}; pass the folder of your images")
    sides_of_pairs = describe_sides(path)
    images = open_encoded_images(path, classes="none" if sides_of_pairs else None)
    counts = Counter([] if images.labels is None else images.labels.tolist())
    classes = {name: counts[label] for label, name in enumerate(images.class_names)}
    trained = Counter([] if images.labels is None else images.labels[images.rows("train", 0.1)].tolist())
    untrained = untrained_classes(images.class_names, [trained[label] for label in range(len(images.class_names))])
    report = DatasetReport(path=path, images=len(images), classes=classes, warnings=(*images.notices, *untrained))
    report.pairs, report.recipe = sides_of_pairs or ("", "own")
    sides = []
    summary = ValueSummary()
    first_rows: dict[bytes, int] = {}
    for row in range(len(images)):
        where = images.where(row)
        try:
            stored = read_values(images.read([row])[0], where)
        except DataError as error:
            report.damaged.append(str(error))
        else:
            height, width, _ = stored.values_HWC.shape
            sides.append(min(height, width))
            report.not_square += width != height
            report.num_halves += width == 2 * height
            summary.add(stored)
            first = first_rows.setdefault(_digest(stored.values_HWC), row)
            if first != row:
                report.duplicates.append((images.name(row), images.name(first)))
        progress(row + 1, len(images))
    if isinstance(images, ShardImages):
        report.damaged += _damaged_files(images.folder, report.damaged)
    report.kinds = dict(summary.kinds.most_common())
    report.warnings += tuple(summary.warnings(PixelOptions(channels=1 if set(report.kinds) == {"grey"} else 3)))
    _add_advice(report, np.array(sides), size)
    return report


def parse_size(size: int | str | None) -> int | str | None:
    """Return the value of `--size` as data sets take it. Raises `DataError` for what is no size."""
    try:
        return None if size is None else size_of(*height_and_width(size))
    except ValueError as error:
        raise DataError(f"--size: {error}") from None


def _damaged_files(shards: ShardFolder, damaged: list[str]) -> list[str]:
    """Return a message for each file that is damaged outside of the images named already."""
    changed = list(shards.damaged_files())
    unnamed = [file for file in changed if not any(line.startswith(f"{file}: ") for line in damaged)]
    return [f"{file}: size or sha256 differs from dataset.json" for file in unnamed]


def _digest(values_HWC: Values) -> bytes:
    return hashlib.sha256(f"{values_HWC.dtype} {values_HWC.shape}".encode() + values_HWC.tobytes()).digest()


def _add_advice(report: DatasetReport, sides: np.ndarray, size: int | str | None) -> None:
    if not len(sides):
        report.advice = ["no image can be decoded: there is nothing to train on"]
        return
    report.sides = (int(sides.min()), int(np.median(sides)), int(sides.max()))
    fitting = [s for s in _SUGGESTED if s <= report.sides[1]]
    report.size = size or max(fitting, default=min(_SUGGESTED))
    report.num_smaller = int((sides < min(height_and_width(report.size))).sum())
    report.advice = _advice(report)
    dataset = ["data.name=shards"] if has_shards(report.path) else []
    recipe = "pix2pix-facades" if _holds_pairs(report) else report.recipe
    words = ["train", recipe, *dataset, f"data.path={report.path}", f"data.size={report.size}"]
    if report.pairs and recipe == "pix2pix-facades":
        words.append("data.direction=a_to_b")
    elif set(report.kinds) == {"grey"} and recipe != "pix2pix-facades":
        words.append("data.channels=1")
    if (report.damaged or "damaged=skip" in report.pairs) and not dataset:
        words.append("data.damaged=skip")
    report.command = f"{program_command()} {shlex.join(words)}"


def _holds_pairs(report: DatasetReport) -> bool:
    return report.num_halves > 0.9 * report.images and not has_shards(report.path)


def _advice(report: DatasetReport) -> list[str]:
    """Return advice, one line each, the most important first."""
    lines = []
    if report.damaged and has_shards(report.path):
        lines.append("shards are damaged: copy them again, or delete the folder and run `data prepare` again")
    elif report.damaged:
        lines.append(
            f"{_files(len(report.damaged))} damaged: remove or repair them (training stops at the "
            "first one), or pass data.damaged=skip to exclude them"
        )
    if report.images < FEW_IMAGES and not report.pairs:
        lines.append(
            f"only {report.images:,} images: D will memorise them; use augmentation "
            "(augment.name=diffaugment, on in the recipe own) and the penalty r1"
        )
    if report.kinds.get("alpha"):
        lines.append(
            f"{_files(report.kinds['alpha'])} partly transparent: they are put on white (data.background=0: on black), "
            "and generated images are opaque"
        )
    if report.duplicates:
        lines.append(f"{_files(len(report.duplicates))} duplicates of others: held-out scores may be too good")
    if report.num_smaller:
        lines.append(
            f"{_files(report.num_smaller)} smaller than {report.size} px: they are enlarged and become blurred"
        )
    if _holds_pairs(report):
        lines.append(
            "images are twice as wide as high, as pairs of input and target are: the command trains on pairs, from the "
            "right half to the left; `train own` would crop the middle, with the seam"
        )
    elif report.not_square and not report.pairs:
        lines.append(
            f"{_files(report.not_square)} not square: they are centre-cropped, or resized with data.crop=squash; "
            "data.size=HEIGHTxWIDTH trains on rectangles"
        )
    return [*lines, *_class_advice(report.classes)]


def _class_advice(sizes: Mapping[str, int]) -> list[str]:
    if not sizes:
        return []
    rare, common = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    if sizes[rare] * _MAX_CLASS_RATIO >= sizes[common]:
        return []
    return [f"classes are imbalanced: {sizes[common]:,} images of {common!r}, {sizes[rare]:,} of {rare!r}"]


def _files(count: int) -> str:
    return f"{count:,} image is" if count == 1 else f"{count:,} images are"
