"""Which names are those of splits: one rule for folders, tar files and Parquet files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

SPLITS = ("train", "held_out", "val", "eval", "test")  # the first after `train` is held out
_WORDS = dict(
    zip(SPLITS, (b"train training trn", b"holdout", b"val valid validation dev development", b"eval evaluation",
                 b"test testing tst"), strict=True)
)  # fmt: skip
_SPLIT_OF = {word: split for split, words in _WORDS.items() for word in words.split()}
_SPLIT_AT_END = {b"tr": "train", b"ts": "test"}  # imagesTr, imagesTs; alone they are languages
_FILLERS = frozenset(b"set split data dataset image img photo picture of".split())
_HELD_OUT = re.compile(rb"h[eo]ld[-_ ]?out", re.IGNORECASE)
_WORD = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z\x80-\xff]+")
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
        split = _SPLIT_OF.get(word) or _SPLIT_OF.get(_ENDING.sub(b"", word))
        if split is None and len(words) > 1:
            split = _SPLIT_AT_END.get(word)
        if split is not None:
            splits.append(split)
        elif word not in _FILLERS:
            rest.append(word)
    return splits[0] if len(splits) == 1 else None, tuple(rest)


def group_splits(names: Iterable[bytes]) -> dict[tuple[bytes, ...], tuple[list[bytes], list[bytes]]]:
    """Return the names of the training split and of the held-out one, by what they are splits of.

    Of those next to training the first of `SPLITS` is held out; empty without training.
    """
    kinds: dict[tuple[bytes, ...], dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for name in sorted(names):
        split, kind = parse_split(name)
        if split is not None:
            kinds[kind][split].append(name)
    return {
        kind: (splits["train"], next((splits[split] for split in SPLITS[1:] if split in splits), []))
        for kind, splits in kinds.items()
        if "train" in splits
    }
