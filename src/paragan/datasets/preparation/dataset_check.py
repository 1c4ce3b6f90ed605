"""Check of all images of a folder, zip or tar file before training (`paragan data check`)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paragan.core.addresses import is_url
from paragan.core.errors import DataError
from paragan.core.option_types import Choice, height_and_width, size_of
from paragan.core.source import untrained_classes
from paragan.datasets import audio, folder, npz, paired, shards, unpaired
from paragan.datasets._encoded_images import EncodedImages, ShardImages
from paragan.datasets._image_decoding import check_values_finite
from paragan.datasets._image_formats import image_suffix
from paragan.datasets._image_values import StoredValues, mix_bands, read_values
from paragan.datasets._pair_decoding import PairDecoder, is_pair
from paragan.datasets._pair_files import kind_of_pairs, split_pair
from paragan.datasets._value_summary import ValueSummary
from paragan.datasets.base.audio_files import ENDINGS
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.base.open_reader import ARRAY_SUFFIXES, describe_missing, open_reader
from paragan.datasets.base.reduced_copies import without_reduced_copies
from paragan.datasets.preparation.dataset_report import RECIPES, DatasetReport, add_advice
from paragan.storage.shard_folder import has_shards

_KINDS = {"folder": folder, "shards": shards, "npz": npz, "audio": audio, "paired": paired, "unpaired": unpaired}
_OF_FOLDERS = ("low_resolution", "grey")  # which compute what else a sample has


def guess_data_set(path: str, settings: Sequence[str] = ()) -> str:
    """Return the name of the data set that reads a path. Raises `DataError` for a path that does not exist.

    settings: words, of which `data.classes` says what folders are.
    """
    if path and not is_url(path) and not Path(path).exists():
        raise DataError(f"{describe_missing(path)}; pass the folder of your images")
    if has_shards(path):
        return "shards"
    if Path(path).suffix in ARRAY_SUFFIXES:
        return "npz"
    if any(word.startswith("data.classes=") for word in settings):
        return "folder"
    try:
        files = open_reader(path)
        paths = without_reduced_copies(files, files.find())
    except DataError:  # which reading the images reports, if it is one
        return "folder"
    if paths:
        return kind_of_pairs(paths) or "folder"
    return "audio" if any(kind.encode() in ENDINGS for kind in files.ignored) else "folder"


def check_dataset(
    path: str,
    size: int | str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    data: Choice | None = None,
    settings: Sequence[str] = (),
) -> DatasetReport:
    """Decode every image and report problems, advice and the command to train.

    size: the training size; None: chosen from the image sizes. progress: receives the number of
    images done and the total. data: None: what reads the path, with its defaults. settings: those of data as
    words, for the command. Raises `DataError` if `path` contains no images.
    """
    size = parse_size(size)
    if data is None:
        name = guess_data_set(path)
        data = Choice(name, _KINDS[name].Options(path=path))
    if data.name not in (*_KINDS, *_OF_FOLDERS):
        raise DataError(f"data.name={data.name} is not checked; choose {', '.join((*_KINDS, *_OF_FOLDERS))}")
    report = DatasetReport(path=path, recipe=RECIPES.get(data.name, "own"))
    if data.name == "audio":
        return _check_audio(data.options, report, settings)
    if size is not None and data.name == "paired":
        data = Choice(data.name, replace(data.options, size=size))
    images, decoder = _open(data, report)
    _describe(images, report, data)
    sizes = _examine(images, report, progress, data.options, decoder)
    if isinstance(images, ShardImages):
        changed = [f"{file}: " for file in images.folder.damaged_files()]
        unnamed = [file for file in changed if not any(line.startswith(file) for line in report.damaged)]
        report.damaged += [f"{file}size or sha256 differs from dataset.json" for file in unnamed]
    if sizes:
        add_advice(report, sizes, size, data, settings)
    else:
        report.advice = ["no image can be decoded: there is nothing to train on"]
    return report


def _open(data: Choice, report: DatasetReport) -> tuple[EncodedImages, PairDecoder | None]:
    """Return what a data set reads, and what decodes pairs, if they are some; add to the report what pairs are."""
    options = data.options
    if data.name == "npz":
        return _ArrayImages(options), None
    if data.name == "unpaired":
        images, kinds, sides = unpaired.open_kinds(options)
        report.pairs = unpaired.describe_kinds(images, kinds, options.held_out)
        report.sides_from = sides.named_by if sides else ""
        return images, None
    if data.name == "paired":
        pairs, sides, decoder = paired.open_pairs(options, skip=True)
        names = sides.names if sides else ("the left half", "the right half")
        report.pairs = "; ".join((f"{len(pairs):,} of {names[0]} and {names[1]}", *pairs.notices))
        report.sides_from = sides.named_by if sides else ""
        report.num_without_partner = pairs.num_without_partner if isinstance(pairs, paired.PairedFiles) else 0
        summaries = decoder.summaries(pairs)
        pairs.notices = (*pairs.notices, *decoder.warnings(summaries))
        sides_and_values = zip(decoder.sides, summaries, strict=True)
        better_ranges = {side.role: None if side.limits else values.better_range for side, values in sides_and_values}
        report.range = better_ranges[""]
        report.condition_range = better_ranges["condition_"]
        return pairs, decoder
    if data.name == "shards" and not has_shards(options.path):
        raise DataError(f"data.path: no shards in {options.path!r}; make them with `data prepare SRC OUT`")
    labels = getattr(options, "labels", None)
    classes = getattr(options, "classes", None)
    return open_encoded_images(options.path, classes=classes, labels=labels if isinstance(labels, str) else ""), None


class _ArrayImages(EncodedImages):
    """Images of data set `npz`, the training images first. Errors as of `npz.source`."""

    def __init__(self, options: npz.Options) -> None:
        self._path = options.path
        self.format = Path(options.path).suffix[1:]
        self._values_NCHW, classes, rows, self.notices = npz.read_file(options)
        self._order = np.concatenate([rows["train"], rows["held_out"]])
        self.num_train = len(rows["train"])
        self.split_hashes = np.zeros(len(self._order), np.uint32)
        if classes is not None:
            self.labels, self.class_names = classes.labels[self._order], classes.names

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [self.values(row).values_HWC.tobytes() for row in rows]

    def where(self, row: int) -> str:
        return f"{self._path}: image {self._order[row]}"

    def values(self, row: int) -> StoredValues:
        values_HWC = self._values_NCHW[self._order[row]].transpose(1, 2, 0)
        return StoredValues(values_HWC=values_HWC, has_alpha=False, orientation=1, has_more=False)


def _describe(images: EncodedImages, report: DatasetReport, data: Choice) -> None:
    options = data.options
    names = images.class_names
    splits = {split: images.rows(split, options.held_out) for split in ("train", "held_out")}
    report.images = len(images)
    report.classes = dict(zip(names, images.class_sizes(), strict=True))
    trained, held_out = (images.class_sizes(rows) for rows in splits.values())
    has_labels = bool(getattr(options, "labels", True)) and data.name not in _OF_FOLDERS
    report.trained = dict(zip(names, trained, strict=True))
    report.has_scored_classes = any(map(min, trained, held_out))
    report.warnings = (*images.notices, *(_untrained(names, trained, held_out) if has_labels else ()))
    trains_classes = has_labels and report.has_scored_classes
    num_left_out = sum(size for size, num in zip(held_out, trained, strict=True) if trains_classes and not num)
    report.summary = images.describe(options.held_out, has_labels, num_left_out)
    report.splits = {split: len(rows) for split, rows in splits.items()}
    report.splits["held_out"] -= num_left_out
    report.ignored = dict(images.ignored)


def _untrained(names: Sequence[str], trained: Sequence[int], held_out: Sequence[int]) -> tuple[str, ...]:
    """Return a line about classes that are not trained on, if there are some."""
    if names and not any(map(min, trained, held_out)):
        return ("no class has training and held-out images: the command trains without labels (data.labels=false)",)
    return untrained_classes(names, trained, held_out)


def _check_audio(options: audio.Options, report: DatasetReport, settings: Sequence[str]) -> DatasetReport:
    """Report on audio files, of which the headers are read. Raises `DataError` as data set `audio` does."""
    train, held_out = (audio.source(options, split) for split in ("train", "held_out"))
    report.splits = {"train": len(train), "held_out": len(held_out)}
    report.summary = train.reading
    report.warnings = train.notices
    report.settings = [f"data.path={report.path}", *settings]
    return report


def _examine(
    images: EncodedImages,
    report: DatasetReport,
    progress: Callable[[int, int], None],
    options: Any,
    decoder: PairDecoder | None,
) -> list[tuple[int, int]]:
    """Decode all images, add what they are to the report, and return their sizes; errors as of `mix_bands`."""
    sizes = []
    channels = getattr(options, "channels", None)  # of pairs: as the files are
    summary = ValueSummary(options.range)
    formats: Counter[str] = Counter()
    first_rows: dict[Hashable, int] = {}
    for row in range(len(images)):
        try:
            parts = _read(images, row, decoder)
        except DataError as error:
            report.damaged.append(str(error))
            parts = []
        for image_format, stored in parts:
            height, width = stored.upright_size
            sizes.append((height, width))
            if channels:
                mix_bands(stored.colours_HWC.shape[2], stored.has_alpha, channels, images.where(row))
            report.not_square += width != height
            if not is_pair(width, height):
                report.not_halves.append(images.name(row))
            formats[image_format] += 1
            summary.add(stored)
        if parts:
            values = [stored.values_HWC for _, stored in parts]
            content = tuple((part.dtype, part.shape, hashlib.sha256(part.tobytes()).digest()) for part in values)
            if (first := first_rows.setdefault(content, row)) != row:
                report.duplicates.append((images.name(row), images.name(first)))
        progress(row + 1, len(images))
    report.formats = dict(formats.most_common())
    _add_values(report, summary, isinstance(images, _ArrayImages), options, has_sides=decoder is not None)
    return sizes


def _add_values(report: DatasetReport, summary: ValueSummary, is_array: bool, options: Any, has_sides: bool) -> None:
    """Add the values and bands of all images to the report; each side of pairs has its own range, see `_open`."""
    report.kinds = dict(summary.kinds.most_common())
    report.ranges = summary.ranges
    report.is_grey = summary.max_bands == 1 and not report.kinds.get("alpha")
    channels = summary.max_bands if report.is_grey or is_array else getattr(options, "channels", 3)
    if not has_sides:
        report.range = summary.better_range if options.range is None else None
        report.warnings += tuple(summary.warnings(channels))


def _read(images: EncodedImages, row: int, decoder: PairDecoder | None) -> list[tuple[str, StoredValues]]:
    """Return format and values of an image, or of both of a pair. Raises `DataError` for what cannot be trained on."""
    where = images.where(row)
    if isinstance(images, _ArrayImages):
        parts = [(images.format, images.values(row))]
    else:
        (data,) = images.read([row])
        if decoder is not None:  # which refuses what is no pair
            decoder(data, where)
        files = split_pair(data) if isinstance(images, paired.PairedFiles) else (data,)
        parts = [((image_suffix(file) or ".other")[1:], read_values(file, where)) for file in files]
    for _, stored in parts:
        check_values_finite(stored.values_HWC, where)
    return parts


def parse_size(size: int | str | None) -> int | str | None:
    """Return the value of `--size` as data sets take it. Raises `DataError` for what is no size."""
    try:
        return None if size is None else size_of(*height_and_width(size))
    except ValueError as error:
        raise DataError(f"--size: {error}") from None
