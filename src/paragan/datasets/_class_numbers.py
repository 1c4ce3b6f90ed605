"""Classes of labels, which are numbered from 0 without gaps."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.printable import counted, join_some

Labels = NDArray[np.int32] | NDArray[np.int64]
_WHOLE = re.compile(r"\s*(0|-?[1-9]\d*)\s*")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?\s*")
_PROGRAM = "write one class for each image, or train on such targets in a program, with pg.Trainer"
_MAX_LABEL = 1 << 53  # to which floats have all integers
_DAMAGE_ERRORS = (ValueError, TypeError, RecursionError, OverflowError, csv.Error)


class NumberedClasses(NamedTuple):
    """Labels from 0 without gaps, int32 (N,), the names of their classes, and a line if numbers have changed."""

    labels: NDArray[np.int32]
    names: tuple[str, ...]
    notices: tuple[str, ...]


def number_classes(labels: Labels, where: str, names: Sequence[str] = ()) -> NumberedClasses:
    """Number the classes that have images from 0.

    names: of the numbers from 0; without enough of them, a class is called by its number. Raises `DataError`
    for negative numbers, and for large ones that occur once, as those of images do.
    """
    present, numbers = np.unique(labels, return_inverse=True)
    lowest, highest = int(present[0]), int(present[-1])
    if lowest < 0 or (len(present) == len(labels) and highest >= max(len(labels), 2)):
        raise DataError(f"{where}: labels range from {lowest} to {highest}; number the classes from 0")
    class_names = tuple(names[label] if highest < len(names) else str(label) for label in present.tolist())
    notices: tuple[str, ...] = ()
    if len(present) <= highest or len(present) < len(names):  # numbers or names without images
        listed = join_some([repr(name) for name in class_names])
        last = len(class_names) - 1
        notices = (
            f"{where}: images of only {counted(last + 1, 'class')}, {listed}; their labels are numbered 0 to {last}",
        )
    return NumberedClasses(numbers.astype(np.int32), class_names, notices)


def number_labels(
    labels: Sequence[object], where: str, name: Callable[[int], str], names: Sequence[str] = ()
) -> NumberedClasses:
    """Number the classes of labels: integers or text, one for each image.

    where: the labels in messages. name: returns the name of an image. names: of the classes 0, 1, ...
    of integers. Raises `DataError` for other labels, as for several of one image.
    """
    with raise_label_errors(where):
        labels = _parse(labels)
    kind = type(labels[0]) if isinstance(labels[0], int | str) else int
    for row, label in enumerate(labels):
        if isinstance(label, list | tuple | dict):
            raise DataError(f"{where}: {name(row)} has several labels, {str(label)[:40]}; {_PROGRAM}")
        if not isinstance(label, kind) or label == "":
            text = "no label" if label in (None, "") else f"the label {str(label)[:40]}"
            raise DataError(f"{where} holds neither integers nor text: {name(row)} has {text}; {_PROGRAM}")
    if isinstance(labels[0], str):
        with raise_label_errors(where):
            "".join(map(str, labels)).encode()  # JSON can hold halves of characters
        names = sorted(set(map(str, labels)))
        number_of = {name: number for number, name in enumerate(names)}
        for text in names:
            parts = [part.strip() for part in re.split("[,;|]", text)]
            if len(parts) > 1 and (number_of.keys() >= {*parts} or all(map(_WHOLE.fullmatch, parts))):
                raise DataError(f"{where}: {text!r} are several labels of an image; {_PROGRAM}")
        labels = [number_of[str(label)] for label in labels]
    with raise_label_errors(where):
        return number_classes(np.array(labels, np.int64), where, names)


def _parse(labels: Sequence[object]) -> Sequence[object]:
    """Return whole numbers, also as text or as floats, as integers, other numbers as floats, and bytes as text."""
    labels = [label.decode(errors="backslashreplace") if isinstance(label, bytes) else label for label in labels]
    labels = [label.strip() if isinstance(label, str) else label for label in labels]
    texts = [label for label in labels if isinstance(label, str)]
    if len(texts) == len(labels):
        if all(_WHOLE.fullmatch(text) for text in texts):
            return [int(text) for text in texts]
        has_fractions = not all(text.strip().isdecimal() for text in texts)  # 007 is a name
        if has_fractions and all(_NUMBER.fullmatch(text) for text in texts):
            labels = [float(text) for text in texts]
    return [int(label) if _is_whole(label) else label for label in labels]


def _is_whole(label: object) -> TypeGuard[int | float]:
    return isinstance(label, int | float) and label % 1 == 0 and abs(label) < _MAX_LABEL


@contextmanager
def raise_label_errors(where: str) -> Iterator[None]:
    """Turn errors of the readers of labels into a `DataError`. where: the labels in messages."""
    try:
        yield
    except _DAMAGE_ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{where}: labels cannot be read ({reason}); correct or remove the file") from None
