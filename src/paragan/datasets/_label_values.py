"""Labels as they are in files, integers or text, as numbers of classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from paragan.core.errors import DataError
from paragan.datasets._encoded_images import NumberedClasses, number_classes

LABEL_NAMES = ("label", "labels", "fine_label", "class", "class_name", "category", "target")  # of columns
_WHOLE = re.compile(r"\s*(0|-?[1-9]\d*)\s*")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?\s*")
_PROGRAM = "write one class for each image, or train on such targets in a program, with pg.Trainer"


def number_labels(
    labels: Sequence[object], where: str, name: Callable[[int], str], names: Sequence[str] = ()
) -> NumberedClasses:
    """Number the classes of labels: integers or text, one for each image.

    where: the labels in messages. name: returns the name of an image. names: of the classes 0, 1, ...
    of integers. Raises `DataError` for other labels, as for several of one image.
    """
    labels = _parse(labels)
    for row, label in enumerate(labels):
        if isinstance(label, list | tuple | dict):
            raise DataError(f"{where}: {name(row)} has several labels, {str(label)[:40]}; {_PROGRAM}")
        if not isinstance(label, type(labels[0]) if isinstance(labels[0], int | str) else int) or label == "":
            text = "no label" if label in (None, "") else f"the label {str(label)[:40]}"
            raise DataError(f"{where} holds neither integers nor text: {name(row)} has {text}; {_PROGRAM}")
    if isinstance(labels[0], str):
        names = sorted(set(map(str, labels)))
        number_of = {name: number for number, name in enumerate(names)}
        labels = [number_of[str(label)] for label in labels]
    return number_classes(np.array(labels, np.int64), where, names)


def _parse(labels: Sequence[object]) -> Sequence[object]:
    """Return whole numbers, also as text or as floats, as integers, and other numbers as floats."""
    texts = [label for label in labels if isinstance(label, str)]
    if len(texts) == len(labels):
        if all(_WHOLE.fullmatch(text) for text in texts):
            return [int(text) for text in texts]
        has_fractions = not all(text.strip().isdecimal() for text in texts)  # 007 is a name
        if has_fractions and all(_NUMBER.fullmatch(text) for text in texts):
            labels = [float(text) for text in texts]
    numbers = [label for label in labels if isinstance(label, float) and label.is_integer()]
    return labels if len(numbers) < len(labels) else [int(number) for number in numbers]
