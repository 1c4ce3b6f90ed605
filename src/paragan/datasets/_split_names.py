"""Which names are those of splits, or of several kinds of files: one rule for folders, tar files and Parquet files."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TRAIN, HELD_OUT, NOT_READ = 0, 1, -1  # in arrays of the split of each path
SPLITS = ("train", "held_out", "val", "eval", "test")  # the first after `train` is held out
_WORDS = (b"train training trn", b"holdout", b"val valid validation dev development", b"eval evaluation",
          b"test testing tst")  # fmt: skip
_SPLIT_OF = {word: split for split, words in zip(SPLITS, _WORDS, strict=True) for word in words.split()}
_SPLIT_AT_END = {b"tr": "train", b"ts": "test"}  # imagesTr, imagesTs; alone they are languages
_FILLERS = frozenset(b"set split data dataset image img photo picture of".split())
_HELD_OUT_WORD = re.compile(rb"h[eo]ld[-_ ]?out", re.IGNORECASE)
_WORD = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z\x80-\xff]+")  # DIV, left, Img
_MASK_FILE_WORDS = b"mask annotation segmentation superpixel groundtruth".split()
_MASK_OF = re.compile(rb"(?i)[_-](?:%s)s?(?:[_-]\d+)?\.[^./]+\Z" % b"|".join(_MASK_FILE_WORDS))
# words of which one means a kind of images, and words that are next to it
IMAGES = (frozenset(b"image img photo picture rgb original data".split()), frozenset(b"jpeg left right bit".split()))
_OF_TARGETS = frozenset(b"ground clas object fine coarse part".split())  # as of `words_of`, which cuts the s of class
TARGETS = (frozenset(b"mask anno annotation segmentation truth groundtruth gt".split()), _OF_TARGETS)  # never classes
MASKS = (TARGETS[0] | frozenset(b"label depth normal edge".split()), _OF_TARGETS)
# of 1_left, img-mask and 3A
_LAST_WORD = re.compile(rb"[ _.-]?(?<![A-Za-z])([A-Za-z]*)\Z")
_NUM_COMPARED = 1000
_MIN_SETS = 5
_MAX_KINDS = 4
# of trainset and testdata
_ENDING = re.compile(rb"(?<=.)(?:set|split|data|image|img)$")


def words_of(name: bytes) -> list[bytes]:
    """Return the words of a name in lower case without the plural's s: `leftImg8bit` is left, img and bit."""
    words = [word.lower() for word in _WORD.findall(_HELD_OUT_WORD.sub(b"holdout", name))]
    return [word.removesuffix(b"s") if len(word) > 3 else word for word in words]


def names_split(name: bytes) -> bool:
    """Return whether one word of a name means a split, as of `train_images`."""
    split, _ = parse_split(name)
    return split is not None


def parse_split(name: bytes) -> tuple[str | None, tuple[bytes, ...]]:
    """Return the split that one word of a name means (None without one), and the words that say what it is a split of.

    `DIV2K_train_HR` is train of div, k, hr; `Testing Data` is test of nothing.
    """
    splits = []
    rest = []
    words = words_of(name)
    for word in words:
        known = _SPLIT_OF | _SPLIT_AT_END if len(words) > 1 else _SPLIT_OF
        if (split := known.get(word, known.get(_ENDING.sub(b"", word)))) is not None:
            splits.append(split)
        elif word not in _FILLERS:
            rest.append(word)
    return splits[0] if len(splits) == 1 else None, tuple(rest)


def group_splits(names: list[bytes]) -> dict[tuple[bytes, ...], tuple[list[bytes], list[bytes]]]:
    """Return the names of the training split and of the one to hold out, if any, by what they are splits of."""
    kinds: dict[tuple[bytes, ...], dict[str, list[bytes]]] = {}
    for name in names:
        split, kind = parse_split(name)
        by_split = kinds.setdefault(kind, {word: [] for word in SPLITS})
        if split is not None:
            by_split[split].append(name)
    groups = {}
    for kind, by_split in kinds.items():
        if by_split["train"]:
            groups[kind] = (by_split["train"], next((by_split[split] for split in SPLITS[1:] if by_split[split]), []))
    return groups


def split_by_names(paths: list[bytes], splits: NDArray[np.int8]) -> None:
    """Divide the training images in place into `TRAIN`, `HELD_OUT` and `NOT_READ`, if all are named after splits.

    Such as `train_0001.png` and `val_0001.png`.
    """
    words: list[str] = []
    rows = np.flatnonzero(splits == TRAIN)
    for row in rows:
        word, _ = parse_split(os.path.splitext(os.path.basename(paths[row]))[0])
        if word is None:
            return
        words.append(word)
    if "train" in words:
        splits[rows] = splits_of_words(words)


def splits_of_words(words: Sequence[str | None]) -> NDArray[np.int8]:
    """Return `TRAIN`, `HELD_OUT` or `NOT_READ` for names of `SPLITS`."""
    held_out = next((word for word in SPLITS[1:] if word in words), "train")
    # "train" comes last: without a held-out split it is the training one
    return np.array([{held_out: HELD_OUT, "train": TRAIN}.get(word or "", NOT_READ) for word in words], np.int8)


def describe_kinds(paths: list[bytes], where: str) -> tuple[str, ...]:
    """Return a line if most of the sorted names come in sets that differ in the last word: 1_left.png, 1_right.png."""
    kinds: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for path in paths[:_NUM_COMPARED]:
        stem, suffix = os.path.splitext(path)
        if suffix and (match := _LAST_WORD.search(stem)):
            kinds[stem[: match.start()]].add(match[1])
    if not kinds:
        return ()
    words, count = Counter(map(frozenset, kinds.values())).most_common(1)[0]
    if count < max(_MIN_SETS, 0.9 * len(kinds)) or not 1 < len(words) <= _MAX_KINDS:
        return ()
    listed = ", ".join(repr(os.fsdecode(word)) for word in sorted(words))
    return (
        f"{where}: names of files come in sets that end in {listed}, and all of them are trained on; move each kind "
        "into a folder of its own, or pass data.classes=none",
    )


def are_words_of(words: Collection[bytes], vocabulary: tuple[frozenset[bytes], frozenset[bytes]]) -> bool:
    """Return whether words of a name, as of `words_of`, mean `IMAGES`, `MASKS` or `TARGETS` and nothing else."""
    meanings, others = vocabulary
    return not meanings.isdisjoint(words) and meanings.union(others).issuperset(words)


def masks_of_images(paths: list[bytes]) -> list[int]:
    """Return the rows of files such as `1_mask.png` next to `1.jpg`."""
    text = b"\n".join(paths).lower()
    if not any(
        word in text for word in _MASK_FILE_WORDS
    ):  # most sets; a pattern for each of a million names takes seconds
        return []
    named = [(row, path[: match.start()]) for row, path in enumerate(paths) if (match := _MASK_OF.search(path))]
    stems = {os.path.splitext(path)[0] for path in paths} if named else set()
    return [row for row, stem in named if stem in stems]


def split_folder(file: Path, root: Path) -> str:
    """Return the name of a file without suffix, or of its folder in `root`, that means a split; empty if none does."""
    names = (file.stem.partition(".tar")[0], file.parent.name if file.parent != root else "")
    return next((name for name in names if names_split(os.fsencode(name))), "")
