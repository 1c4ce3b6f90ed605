"""What kind of files names mean: images, masks or targets, and sets of several kinds."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import NamedTuple


class Vocabulary(NamedTuple):
    """Words that mean a kind of files, and words that may stand next to them; all as of `words_of`."""

    meanings: frozenset[bytes]
    others: frozenset[bytes]

    def covers(self, words: Collection[bytes]) -> bool:
        """Return whether some of the words mean this kind, and all are of the vocabulary."""
        return not self.meanings.isdisjoint(words) and (self.meanings | self.others).issuperset(words)


def _words(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


_OF_TARGETS = _words("ground clas object fine coarse part")  # `words_of` cuts the s of class
IMAGES = Vocabulary(_words("image img photo picture rgb original data"), _words("jpeg left right bit"))
TARGETS = Vocabulary(_words("mask anno annotation segmentation truth groundtruth gt"), _OF_TARGETS)  # never classes
MASKS = Vocabulary(TARGETS.meanings | _words("label depth normal edge"), _OF_TARGETS)

_MASK_FILE_WORDS = b"mask annotation segmentation superpixel groundtruth".split()
_MASK_OF = re.compile(rb"(?i)[_-](?:%s)s?(?:[_-]\d+)?\.[^./]+\Z" % b"|".join(_MASK_FILE_WORDS))
_LAST_WORD = re.compile(rb"[ _.-]?(?<![A-Za-z])([A-Za-z]*)\Z")  # left of 1_left, A of 3A
_NUM_COMPARED = 1000
_MIN_SETS = 5
_MAX_KINDS = 4


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


def masks_of_images(paths: list[bytes]) -> list[int]:
    """Return the rows of files such as `1_mask.png` next to `1.jpg`."""
    text = b"\n".join(paths).lower()
    if not any(word in text for word in _MASK_FILE_WORDS):  # a pattern for each of a million names takes seconds
        return []
    named = [(row, path[: match.start()]) for row, path in enumerate(paths) if (match := _MASK_OF.search(path))]
    stems = {os.path.splitext(path)[0] for path in paths} if named else set()
    return [row for row, stem in named if stem in stems]
