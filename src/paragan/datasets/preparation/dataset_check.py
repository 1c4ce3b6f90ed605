"""Check of all images of a folder, zip or tar file before training (`paragan data check`)."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paragan.core.addresses import is_url
from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.option_types import height_and_width, size_of
from paragan.core.printable import join_some
from paragan.core.source import untrained_classes
from paragan.datasets import audio, npz
from paragan.datasets._encoded_images import EncodedImages, ShardImages
from paragan.datasets._image_decoding import check_values_finite
from paragan.datasets._image_formats import image_suffix
from paragan.datasets._image_values import StoredValues, ValueSummary, read_values
from paragan.datasets._options import PixelOptions
from paragan.datasets._pair_files import describe_sides
from paragan.datasets.base.audio_files import ENDINGS
from paragan.datasets.base.open_images import ARRAY_SUFFIXES, describe_missing, open_encoded_images, open_reader
from paragan.storage.shard_folder import has_shards

FEW_IMAGES = 1000
_MAX_CLASS_RATIO = 10
_LARGE_SIDE = 128  # of images that are too large for the recipe own
# sizes suggested by default; larger networks are slow without an accelerator
_SUGGESTED = (8, 12, 16, 24, 32, 48, 64)


@dataclass(kw_only=True)
class DatasetReport:
    """Result of the check of a data set.

    images: number of image files. damaged: a message each. sides: minimum, median and maximum
    shorter side in pixels. num_halves: images twice as wide as high, as pairs are. kinds: images by
    kind: colour, grey, alpha, 16-bit. pairs: of files in two folders, and those without a partner, in
    words. duplicates: an image and the first that equals it. warnings: about values, and class folders
    without images. summary: what a run makes of it, in words. splits: number of images. ranges: lowest
    and highest value by depth (`8-bit`). formats: images by format. ignored: files that are not read, by
    kind. size: to train with. num_smaller: images that are enlarged to it.
    """

    path: str
    images: int = 0
    damaged: list[str] = field(default_factory=list)
    sides: tuple[int, int, int] = (0, 0, 0)
    not_square: int = 0
    num_halves: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    summary: str = ""
    splits: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    formats: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
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
    if Path(path).suffix in ARRAY_SUFFIXES:
        return _check_images(_ArrayImages(path), DatasetReport(path=path), size, progress)
    if _holds_audio(path):
        return _check_audio(path)
    pairs, recipe = describe_sides(path) or ("", "own")
    images = open_encoded_images(path, classes="none" if pairs else None)
    return _check_images(images, DatasetReport(path=path, pairs=pairs, recipe=recipe), size, progress)


class _ArrayImages(EncodedImages):
    """Images of data set `npz` at its default options, the training images first. Errors as of `npz.source`."""

    def __init__(self, path: str) -> None:
        options = npz.Options(path=path)
        self._path = path
        self.format = Path(path).suffix[1:]
        self._values_NCHW = npz.read_stored_images(options)
        classes = npz.read_classes(options, len(self._values_NCHW))
        rows = npz.split_rows(options, classes, len(self._values_NCHW))
        self._order = np.concatenate([rows["train"], rows["held_out"]])
        self.num_train = len(rows["train"])
        self.split_hashes = np.zeros(len(self._order), np.uint32)
        if classes is not None:
            self.labels, self.class_names, self.notices = classes
            self.labels = classes.labels[self._order]

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [self.values(row).values_HWC.tobytes() for row in rows]

    def where(self, row: int) -> str:
        return f"{self._path}: image {self._order[row]}"

    def values(self, row: int) -> StoredValues:
        values_HWC = self._values_NCHW[self._order[row]].transpose(1, 2, 0)
        return StoredValues(values_HWC=values_HWC, has_alpha=False, orientation=1, has_more=False)


def _check_images(
    images: EncodedImages, report: DatasetReport, size: int | str | None, progress: Callable[[int, int], None]
) -> DatasetReport:
    """Complete a report with what images are, advice and a command."""
    names = images.class_names
    report.images = len(images)
    report.classes = dict(zip(names, images.class_sizes(), strict=True))
    report.warnings = (*images.notices, *untrained_classes(names, images.class_sizes(images.rows("train", 0.1))))
    report.summary = images.describe()
    report.splits = {split: len(images.rows(split, 0.1)) for split in ("train", "held_out")}
    report.ignored = dict(images.ignored)
    sides = _examine(images, report, progress)
    if isinstance(images, ShardImages):
        changed = [f"{file}: " for file in images.folder.damaged_files()]
        unnamed = [file for file in changed if not any(line.startswith(file) for line in report.damaged)]
        report.damaged += [f"{file}size or sha256 differs from dataset.json" for file in unnamed]
    dataset = {ShardImages: "shards", _ArrayImages: "npz"}.get(type(images), "folder")
    _add_advice(report, sides, size, dataset)
    return report


def _holds_audio(path: str) -> bool:
    """Return whether a folder or archive has audio files and no images."""
    if not path or has_shards(path) or not (Path(path).is_dir() or Path(path).suffix == ".zip"):
        return False
    files = open_reader(path)
    return not files.images() and any(kind.encode() in ENDINGS for kind in files.ignored)


def _check_audio(path: str) -> DatasetReport:
    """Report on audio files, of which the headers are read. Raises `DataError` as data set `audio` does."""
    train, held_out = (audio.source(audio.Options(path=path), split) for split in ("train", "held_out"))
    splits = {"train": len(train), "held_out": len(held_out)}
    report = DatasetReport(path=path, summary=train.reading, warnings=train.notices, splits=splits)
    report.command = f"{program_command()} {shlex.join(['train', 'vocoder', f'data.path={path}'])}"
    return report


def _examine(images: EncodedImages, report: DatasetReport, progress: Callable[[int, int], None]) -> list[int]:
    """Decode all images, add what they are to the report, and return their shorter sides."""
    sides = []
    summary = ValueSummary()
    formats: Counter[str] = Counter()
    first_rows: dict[Hashable, int] = {}
    for row in range(len(images)):
        try:
            image_format, stored = _read(images, row)
            check_values_finite(stored.values_HWC, images.where(row))
        except DataError as error:
            report.damaged.append(str(error))
        else:
            height, width, _ = stored.values_HWC.shape
            sides.append(min(height, width))
            report.not_square += width != height
            report.num_halves += width == 2 * height
            formats[image_format] += 1
            summary.add(stored)
            content = hashlib.sha256(stored.values_HWC.tobytes()).digest()
            first = first_rows.setdefault((stored.values_HWC.dtype, stored.values_HWC.shape, content), row)
            if first != row:
                report.duplicates.append((images.name(row), images.name(first)))
        progress(row + 1, len(images))
    report.formats = dict(formats.most_common())
    report.kinds = dict(summary.kinds.most_common())
    report.ranges = summary.ranges
    channels = summary.max_bands if isinstance(images, _ArrayImages) else 1 if set(report.kinds) == {"grey"} else 3
    report.warnings += tuple(summary.warnings(PixelOptions(channels=channels)))
    return sides


def _read(images: EncodedImages, row: int) -> tuple[str, StoredValues]:
    """Return the format of an image and its values."""
    if isinstance(images, _ArrayImages):
        return images.format, images.values(row)
    (data,) = images.read([row])
    return (image_suffix(data) or ".other")[1:], read_values(data, images.where(row))


def parse_size(size: int | str | None) -> int | str | None:
    """Return the value of `--size` as data sets take it. Raises `DataError` for what is no size."""
    try:
        return None if size is None else size_of(*height_and_width(size))
    except ValueError as error:
        raise DataError(f"--size: {error}") from None


def _add_advice(report: DatasetReport, sides: list[int], size: int | str | None, dataset: str) -> None:
    """Add sizes, advice and a command. dataset: `folder`, `shards` or `npz`."""
    if not sides:
        report.advice = ["no image can be decoded: there is nothing to train on"]
        return
    report.sides = (min(sides), int(np.median(sides)), max(sides))
    fitting = [side for side in _SUGGESTED if side <= report.sides[1]]
    report.size = size or max(fitting, default=min(_SUGGESTED))
    report.num_smaller = sum(side < min(height_and_width(report.size)) for side in sides)
    holds_pairs = report.num_halves > 0.9 * report.images and dataset == "folder"
    of_size = [] if dataset == "npz" else _size_advice(report, holds_pairs)  # arrays are trained on at their size
    report.advice = [*_advice(report, dataset), *of_size, *_class_advice(report.classes)]
    recipe = "pix2pix-facades" if holds_pairs else report.recipe
    words = ["train", recipe, *([] if dataset == "folder" else [f"data.name={dataset}"]), f"data.path={report.path}"]
    if dataset != "npz":
        words.append(f"data.size={report.size}")
        if report.pairs and recipe == "pix2pix-facades":
            words.append("data.direction=a_to_b")
        elif set(report.kinds) == {"grey"} and recipe != "pix2pix-facades":
            words.append("data.channels=1")
    if report.ranges.keys() - {"8-bit", "16-bit"} or any(low < 0 for low, _ in report.ranges.values()):
        lows, highs = zip(*report.ranges.values(), strict=True)
        words.append(f"data.range=[{min(lows):g},{max(highs):g}]")
    if (report.damaged or "damaged=skip" in report.pairs) and dataset == "folder":
        words.append("data.damaged=skip")
    report.command = f"{program_command()} {shlex.join(words)}"


def _advice(report: DatasetReport, dataset: str) -> list[str]:
    """Return advice, one line each, the most important first."""
    lines = []
    if report.damaged and dataset == "shards":
        lines.append("shards are damaged: copy them again, or delete the folder and run `data prepare` again")
    elif report.damaged and dataset == "folder":
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
            "and generated images are opaque; data.channels=4 trains on transparency, too"
        )
    if report.duplicates:
        lines.append(f"{_files(len(report.duplicates))} duplicates of others: held-out scores may be too good")
    return lines


def _size_advice(report: DatasetReport, holds_pairs: bool) -> list[str]:
    lines = []
    if report.num_smaller:
        lines.append(
            f"{_files(report.num_smaller)} smaller than {report.size} px: they are enlarged and become blurred"
        )
    if holds_pairs:
        lines.append(
            "images are twice as wide as high, as pairs of input and target are: the command trains on pairs, from the "
            "right half to the left; `train own` would crop the middle, with the seam"
        )
    elif report.not_square and not report.pairs:
        lines.append(
            f"{_files(report.not_square)} not square: they are centre-cropped, or resized with data.crop=squash; "
            "data.size=HEIGHTxWIDTH trains on rectangles"
        )
    if report.sides[1] >= _LARGE_SIDE and report.recipe == "own" and not holds_pairs:
        command = f"{program_command()} {shlex.join(['train', 'own-256', f'data.path={report.path}'])}"
        lines.append(
            f"images of {report.sides[1]:,} px: on a GPU, the recipe own-256 trains at 128 to 512 px: {command}"
        )
    return lines


def _class_advice(sizes: Mapping[str, int]) -> list[str]:
    lines = []
    if single := [repr(name) for name, size in sizes.items() if size == 1]:
        named = join_some(single)
        lines.append(f"classes of one image: {named}; it is trained on, and such a class cannot be scored; add images")
    rare, common = (choose(sizes, key=sizes.__getitem__, default="") for choose in (min, max))
    if sizes and sizes[rare] * _MAX_CLASS_RATIO < sizes[common]:
        lines.append(
            f"classes are imbalanced: {sizes[common]:,} images of {common!r}, {sizes[rare]:,} of {rare!r}; labels are "
            "drawn as in the data, data.balance=classes evens the images"
        )
    return lines


def _files(count: int) -> str:
    return f"{count:,} image is" if count == 1 else f"{count:,} images are"
