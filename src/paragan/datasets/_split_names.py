"""Which names are those of splits, or of several kinds of files: one rule for folders, tar files and Parquet files."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SPLITS = ("train", "held_out", "val", "eval", "test")  # the first after `train` is held out
_WORDS = (b"train training trn", b"holdout", b"val valid validation dev development", b"eval evaluation",
          b"test testing tst")  # fmt: skip
_SPLIT_OF = {word: split for split, words in zip(SPLITS, _WORDS, strict=True) for word in words.split()}
_SPLIT_AT_END = {b"tr": "train", b"ts": "test"}  # imagesTr, imagesTs; alone they are languages
_FILLERS = frozenset(b"set split data dataset image img photo picture of".split())
_HELD_OUT = re.compile(rb"h[eo]ld[-_ ]?out", re.IGNORECASE)
_WORD = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z\x80-\xff]+")
_MASKS = b"mask annotation segmentation superpixel groundtruth".split()
_MASK_OF = re.compile(rb"(?i)[_-](?:%s)s?(?:[_-]\d+)?\.[^./]+\Z" % b"|".join(_MASKS))
_LAST_WORD = re.compile(rb"(?s)(.*?)[ _.-]?([A-Za-z]*)\.[^./]*")
_NUM_COMPARED = 1000
_MIN_SETS = 5
_MAX_KINDS = 4
_ENDING = re.compile(rb"(?<=.)(?:set|split|data|image|img)$")


def words_of(name: bytes) -> list[bytes]:
    """Return the words of a name in lower case without the plural's s: `leftImg8bit` is left, img and bit."""
    words = [word.lower() for word in _WORD.findall(_HELD_OUT.sub(b"holdout", name))]
    return [word.removesuffix(b"s") if len(word) > 3 else word for word in words]


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
        kinds.setdefault(kind, {word: [] for word in SPLITS}).get(split or "", []).append(name)
    held_out = {kind: next((of[split] for split in SPLITS[1:] if of[split]), []) for kind, of in kinds.items()}
    return {kind: (of["train"], held_out[kind]) for kind, of in kinds.items() if of["train"]}


def split_by_names(paths: list[bytes], splits: NDArray[np.int8]) -> None:
    """Divide the images of split 0 in place, 0, 1 or -1 (not read), if all are named after splits: `train_0001.png`."""
    words: list[str] = []
    for row in (rows := np.flatnonzero(splits == 0)):
        word, _ = parse_split(os.path.splitext(os.path.basename(paths[row]))[0])
        if word is None:
            return
        words.append(word)
    held_out = next((word for word in SPLITS[1:] if word in words), None)
    if held_out and "train" in words:
        splits[rows] = [{"train": 0, held_out: 1}.get(word, -1) for word in words]


def describe_kinds(paths: list[bytes], where: str) -> tuple[str, ...]:
    """Return a line if most of the sorted names come in sets that differ in the last word: 1_left.png, 1_right.png."""
    kinds: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for path in paths[:_NUM_COMPARED]:
        if match := _LAST_WORD.fullmatch(path):
            kinds[match[1]].add(match[2])
    ((words, count),) = Counter(map(frozenset, kinds.values())).most_common(1) or [(frozenset(), 0)]
    if count < max(_MIN_SETS, 0.9 * len(kinds)) or not 1 < len(words) <= _MAX_KINDS:
        return ()
    listed = ", ".join(repr(os.fsdecode(word)) for word in sorted(words))
    return (
        f"{where}: names of files come in sets that end in {listed}, and all of them are trained on; move each kind "
        "into a folder of its own, or pass data.classes=none",
    )


def masks_of_images(paths: list[bytes]) -> list[int]:
    """Return the rows of files such as `1_mask.png` next to `1.jpg`."""
    text = b"\n".join(paths).lower()
    if not any(word in text for word in _MASKS):  # most sets; a pattern for each of a million names takes seconds
        return []
    named = [(row, path[: match.start()]) for row, path in enumerate(paths) if (match := _MASK_OF.search(path))]
    stems = {os.path.splitext(path)[0] for path in paths} if named else set()
    return [row for row, stem in named if stem in stems]


def split_folder(file: Path, root: Path) -> str:
    """Return the name of a file without suffix, or of its folder in `root`, that means a split; empty if none does."""
    names = (file.stem.partition(".tar")[0], file.parent.name if file.parent != root else "")
    return next((name for name in names if parse_split(os.fsencode(name))[0]), "")
