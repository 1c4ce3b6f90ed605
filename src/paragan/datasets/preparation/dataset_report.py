"""What a check of a data set reports: what it holds, advice, and the command to train."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.option_types import Choice, height_and_width, size_of
from paragan.core.printable import join_some

FEW_IMAGES = 1000
_MAX_CLASS_RATIO = 10
_LARGE_SIZES = (128, 256, 512, 1024)  # for which `own` takes the recipe own-128, own-256 or own-512
_MAX_SUGGESTED = 64  # side: larger networks are slow without an accelerator
_SIZE_MULTIPLE = 4  # of the recipe own
RECIPES = {"paired": "pix2pix-facades", "unpaired": "translate", "audio": "vocoder", "low_resolution": "superres"}
RECIPES |= {"grey": "colourise"}


@dataclass(kw_only=True)
class DatasetReport:
    """Result of the check of a data set.

    path: of the data. images: number of image files. sides: minimum, median and maximum shorter side in pixels.
    not_square: number of such images. not_halves: images that are not twice as wide as high, as pairs are.
    kinds: number of images by kind: colour, grey, alpha, 16-bit. formats: by format. ranges: lowest and highest
    value by depth (`8-bit`). range: what becomes dark and bright, if that should be set; condition_range: of the
    condition of pairs. is_grey: all have one band. ignored: number of files that are not read, by kind. damaged: a
    message each. duplicates: an image and the first that equals it.

    classes: number of images by class. trained: number of training images by class. has_scored_classes: a class has
    training and held-out images, without which a run is refused unless labels are off. splits: number of images.
    pairs: what the two sides are read from, in words; empty without sides. sides_from: `folders` or `files`, by whose
    names sides were found. num_without_partner: files left out of pairs. num_smaller: images enlarged to `size`.

    summary: what a run makes of the data, in words. warnings: about values, and class folders without images.
    recipe, size, settings: to train with; settings: words; empty: there is nothing to train on. advice: a line each.
    refusal: why the command would not train, in the words of `train`; empty if it does.
    """

    path: str
    images: int = 0
    damaged: list[str] = field(default_factory=list)
    sides: tuple[int, int, int] = (0, 0, 0)
    not_square: int = 0
    not_halves: list[str] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    trained: dict[str, int] = field(default_factory=dict)
    has_scored_classes: bool = False
    warnings: tuple[str, ...] = ()
    summary: str = ""
    splits: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    range: tuple[float, float] | None = None
    condition_range: tuple[float, float] | None = None
    formats: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    pairs: str = ""
    sides_from: str = ""
    num_without_partner: int = 0
    recipe: str = "own"
    size: int | str = 0
    num_smaller: int = 0
    is_grey: bool = False
    advice: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    refusal: str = ""

    @property
    def command(self) -> str:
        """Command to train; empty if there is nothing to train on."""
        words = shlex.join(["train", self.recipe, *self.settings])
        return f"{program_command()} {words}" if self.settings else ""


def add_advice(
    report: DatasetReport, sizes: list[tuple[int, int]], size: int | str | None, data: Choice, settings: Sequence[str]
) -> None:
    """Add sizes, advice and settings to train with; those that are passed go before what the images suggest.

    sizes: heights and widths. Raises `DataError` if there are several and data.crop=none takes one.
    """
    passed = {word.partition("=")[0] for word in settings}
    crop = getattr(data.options, "crop", "")
    _add_sizes(report, sizes, size or (data.options.size if "data.size" in passed else None), crop)
    has_halves = data.name == "folder" and len(report.not_halves) < 0.1 * len(sizes)
    if has_halves:
        report.recipe = RECIPES["paired"]
        report.condition_range = report.range  # both halves are of one file
    report.advice = _advice(report, data)
    if data.name != "npz":  # arrays are trained on at their size
        report.advice += _size_advice(report, crop, has_halves)
    if report.has_scored_classes:
        report.advice += _class_advice(report.classes, report.trained)
    suggested = _suggested_settings(report, data.name, has_halves)
    words = [f"{key}={value}" for key, value in suggested.items() if value is not None and key not in passed]
    report.settings = [*words, *settings]


def _add_sizes(report: DatasetReport, sizes: list[tuple[int, int]], size: int | str | None, crop: str) -> None:
    """Add the sides and the size to train with: `size`, or one that fits most images."""
    sides = list(map(min, sizes))
    report.sides = (min(sides), int(np.median(sides)), max(sides))
    fitting = min(report.sides[1], _MAX_SUGGESTED) // _SIZE_MULTIPLE * _SIZE_MULTIPLE
    report.size = size or (size_of(*sizes[0]) if crop == "none" else max(fitting, 2 * _SIZE_MULTIPLE))
    for height, width in sizes:
        if crop == "none" and (height, width) != height_and_width(report.size):
            raise DataError(
                f"{report.path}: an image of {width} x {height} pixels, but data.crop=none takes {report.size} alone; "
                "pass data.crop=center, random or squash, or another data.size"
            )
    report.num_smaller = sum(side < min(height_and_width(report.size)) for side in sides)


def _suggested_settings(report: DatasetReport, dataset: str, has_halves: bool) -> dict[str, object]:
    """Return the settings that the images call for, by key; None for what need not be set."""
    is_folder = dataset not in ("shards", "npz")  # data sets of which `own` finds the name by the path
    is_paired = report.recipe == RECIPES["paired"]
    needs_skip = report.damaged or report.num_without_partner or (has_halves and report.not_halves)
    return {
        "data.name": None if is_folder else dataset,
        "data.path": report.path,
        "data.size": None if dataset == "npz" else report.size,
        "data.direction": "a_to_b" if dataset == "paired" else None,
        "data.channels": 1 if report.is_grey and dataset not in ("npz", "grey") and not is_paired else None,
        "data.range": report.range and "[{:g},{:g}]".format(*report.range),
        "data.condition_range": report.condition_range and "[{:g},{:g}]".format(*report.condition_range),
        "data.labels": "false" if report.recipe == "own" and report.classes and not report.has_scored_classes else None,
        "data.damaged": "skip" if is_folder and needs_skip else None,
    }


def _advice(report: DatasetReport, data: Choice) -> list[str]:
    lines = []
    if report.damaged and data.name == "shards":
        lines.append("shards are damaged: copy them again, or delete the folder and run `data prepare` again")
    elif report.damaged and data.name != "npz":
        lines.append(
            f"{_files(len(report.damaged))} damaged: remove or repair what is listed (training stops at the "
            "first one), or pass data.damaged=skip to train without damaged images"
        )
    if report.images < FEW_IMAGES and not report.pairs:
        lines.append(
            f"only {report.images:,} images: D will memorise them; use augmentation "
            "(augment.name=diffaugment, on in the recipe own) and the penalty r1"
        )
    if report.is_grey and data.name == "grey":
        lines.append("all images are grey: there are no colours to learn; train on colour photos")
    if report.kinds.get("alpha") and getattr(data.options, "channels", 3) != 4:
        lines.append(
            f"{_files(report.kinds['alpha'])} partly transparent: they are put on white (data.background=0: on black), "
            "and generated images are opaque; data.channels=4 trains on transparency, too"
        )
    if report.sides_from == "folders":
        lines.append("the folders are sides of pairs by their names; data.classes=folders reads them as classes")
    if report.sides_from == "files":
        lines.append("the files are sides of pairs by their names; data.classes=none reads them as one set")
    if report.duplicates:
        lines.append(f"{_files(len(report.duplicates))} equal to others: held-out scores may be too good")
    return lines


def _size_advice(report: DatasetReport, crop: str, has_halves: bool) -> list[str]:
    lines = []
    if report.num_smaller:
        lines.append(
            f"{_files(report.num_smaller)} smaller than {report.size} px: they are enlarged and become blurred"
        )
    if has_halves:
        lines.append(
            "images are twice as wide as high, as pairs of input and target are: the command trains on pairs, from the "
            "right half to the left; `train own` would crop the middle, with the seam"
        )
        if report.not_halves:
            lines.append(f"no pairs, left out by data.damaged=skip: {join_some([repr(n) for n in report.not_halves])}")
    elif report.not_square and not report.pairs and crop == "center":
        lines.append(
            f"{_files(report.not_square)} not square: they are centre-cropped, or resized with data.crop=squash; "
            "data.size=HEIGHTxWIDTH trains on rectangles"
        )
    if report.sides[1] >= _LARGE_SIZES[0] and report.recipe == "own":
        size = max(side for side in _LARGE_SIZES if side <= report.sides[1])
        command = shlex.join(["train", "own", f"data.path={report.path}", f"data.size={size}"])
        device = "on a GPU, " if size > _LARGE_SIZES[0] else ""
        lines.append(
            f"images of {report.sides[1]:,} px: {device}data.size={size} takes the recipe own-{min(size, 512)}: "
            f"{program_command()} {command}"
        )
    return lines


def _class_advice(sizes: Mapping[str, int], trained: Mapping[str, int]) -> list[str]:
    lines = []
    if single := [repr(name) for name, size in sizes.items() if size == trained[name] == 1]:
        named = join_some(single)
        lines.append(f"classes of one image: {named}; it is trained on, and such a class cannot be scored; add images")
    rare = min(sizes, key=sizes.__getitem__)
    common = max(sizes, key=sizes.__getitem__)
    if sizes[rare] * _MAX_CLASS_RATIO < sizes[common]:
        lines.append(
            f"classes are imbalanced: {sizes[common]:,} images of {common!r}, {sizes[rare]:,} of {rare!r}; labels are "
            "drawn as in the data, data.balance=classes evens the images"
        )
    return lines


def _files(count: int) -> str:
    return f"{count:,} image is" if count == 1 else f"{count:,} images are"
