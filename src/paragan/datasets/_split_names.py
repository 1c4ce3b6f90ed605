"""Which names are those of splits: one rule for folders, tar files and Parquet files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
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
_ENDING = re.compile(rb"(?<=.)(?:set|split|data|image|img)$")  # of trainset and testdata


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


def split_folder(file: Path, root: Path) -> str:
    """Return the name of a file without suffix, or of its folder in `root`, that means a split; empty if none does."""
    names = (file.stem.partition(".tar")[0], file.parent.name if file.parent != root else "")
    return next((name for name in names if names_split(os.fsencode(name))), "")
