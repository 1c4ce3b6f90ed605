"""NumPy archive: images and labels in one npz file written by `numpy.savez`, held in memory.

Source: your file.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, Interval
from paragan.core.printable import join_some
from paragan.core.source import Source
from paragan.datasets._class_numbers import NumberedClasses, number_labels
from paragan.datasets._image_values import round_values, top_of
from paragan.datasets._options import check_range
from paragan.datasets._tiff_bands import Values
from paragan.datasets._value_summary import describe_limits, share_outside
from paragan.datasets.base.in_memory import InMemorySource, compute_fingerprint, stratified_split
from paragan.storage import npz

_CHANNELS = (1, 3)  # of either layout; other numbers are on the shorter axis
_MAX_CHANNELS = 16
_ALONE = (3, 4)  # channels of one colour image, with or without alpha, that is no stack of grey ones


@dataclass(frozen=True, kw_only=True)
class Options:
    """An .npz file with images, their labels, and names of the classes.

    Images are uint8 or uint16, other types with `range`, and (N, H, W, C), (N, C, H, W) or (N, H, W) of up to 16
    channels; labels are whole numbers or text, (N,) or (N, 1).
    """

    path: FilePath = ""
    """The .npz file."""
    image_array: str = "images"
    """Name of the image array."""
    label_array: str = "labels"
    """Name of the label array; optional in the file."""
    bits: Literal[8, 16] = 8
    """Depth to which images are rounded."""
    range: tuple[float, float] | None = None
    """Values that become the darkest and the brightest; null: 0 and the highest of 8 or 16 bits."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of each class held out from training."""
    flip: bool = False  # `build.data` reads it
    """Mirror half of the training images, chosen at random in every epoch."""

    def __post_init__(self) -> None:
        check_range(self.range)


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of shape (C, H, W). Raises `DataError` for a missing or invalid array."""
    values_NCHW, classes, splits, notices = read_file(options)
    rows = splits[split]
    depth = (options.bits, options.range) if options.bits > 8 or options.range else ()
    fingerprint = compute_fingerprint(
        Path(options.path), options.image_array, options.label_array, options.held_out, split, *depth
    )
    rounded = round_values(values_NCHW, options.range, options.bits, f"{options.path}: {options.image_array}")
    images_NCHW = torch.from_numpy(rounded)[rows].contiguous()
    labels_N = None if classes is None else torch.from_numpy(classes.labels.astype(np.int64))[rows]
    images = InMemorySource(images_NCHW, labels_N, classes.names if classes else (), fingerprint)
    low, high, top = float(values_NCHW.min()), float(values_NCHW.max()), top_of(values_NCHW)
    share = share_outside(values_NCHW, options.range)
    images.notices = (*describe_limits(options.range, share, low, high, top), *notices)
    images.reading = f"holds out {len(splits['held_out']):,}"
    return images


def read_file(options: Options) -> tuple[Values, NumberedClasses | None, dict[str, Tensor], tuple[str, ...]]:
    """Return images as stored, (N, C, H, W), their classes, the rows of both splits, and lines about the file."""
    values_NCHW = _read_stored_images(options)
    classes = _read_classes(options, len(values_NCHW))
    labels_N = np.zeros(len(values_NCHW)) if classes is None else classes.labels
    splits = stratified_split(torch.from_numpy(labels_N.astype(np.int64)), options.held_out, "npz")
    used = (options.image_array, options.label_array, "class_names")
    unread = [name for name in npz.array_names(Path(options.path)) if name not in used]
    notices = (f"{options.path}: arrays that are not read: {join_some(unread)}",) if unread else ()
    return values_NCHW, classes, splits, (*notices, *(classes.notices if classes else ()))


def _read_stored_images(options: Options) -> Values:
    """Return the values of a file as stored, (N, C, H, W); `DataError` if they are missing or invalid."""
    path = Path(options.path)
    if not options.path or not path.is_file():
        raise DataError(f"data.path: no file {options.path!r}; pass an npz file: data.path=FILE.npz")
    where = f"{path}: {options.image_array}"
    if path.suffix not in (".npz", ".npy") and not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an npz file; load it in Python, and save its images with numpy.savez")
    present = npz.array_names(path)
    if present and options.image_array not in present:
        raise DataError(
            f"{path}: no array {options.image_array!r}; the file has {', '.join(present)}; pass "
            f"data.image_array={_likely(present, 'x', 'image')} data.label_array={_likely(present, 'y', 'label')}"
        )
    array = npz.read_array(path, options.image_array)
    if array.dtype.kind not in "uif":
        raise DataError(f"{where}: the array is {array.dtype}; convert it to numbers and save it again")
    values_NCHW = _with_channels_first(array, where)
    if len(values_NCHW) < 2:
        raise DataError(f"{where}: only one image; at least two are required")
    return values_NCHW


def _likely(names: list[str], start: str, word: str) -> str:
    """Return the name that starts or contains so, one of training if there is one; NAME without."""
    names = [name for name in names if name.lower().startswith(start) or word in name.lower()]
    return max(names, key=lambda name: "train" in name, default="NAME")


def _with_channels_first(array: Values, where: str) -> Values:
    """Return images as (N, C, H, W). Raises `DataError` for another number of axes, and if both may be channels.

    (N, H, W)     grey; `DataError` where N is 3 or 4, or W at most 4: one image with channels
    (N, H, W, C)  C is 1 or 3, or the smallest of the three; if not, (N, C, H, W) in the same way
    """
    if array.ndim == 3 and array.size:
        if array.shape[0] in _ALONE or array.shape[2] <= max(_ALONE):
            raise DataError(
                f"{where}: the shape {array.shape} is that of one image with channels; save several, (N, H, W, C), and "
                "grey ones of this shape as (N, H, W, 1)"
            )
        array = array[..., None]
    if array.ndim == 4 and array.size:
        _, first, height, last = array.shape
        is_last = last in _CHANNELS or (first not in _CHANNELS and last < min(first, height))
        if is_last and last <= _MAX_CHANNELS:
            return array.transpose(0, 3, 1, 2)
        if first in _CHANNELS or (first <= _MAX_CHANNELS and first < min(height, last)):
            return array
    raise DataError(
        f"{where}: the shape is {array.shape}; save (N, H, W, C) or (N, C, H, W) with C from 1 to {_MAX_CHANNELS}, "
        "fewer than H and W"
    )


def _read_classes(options: Options, count: int) -> NumberedClasses | None:
    """Return labels and class names; None if the file has no array under the default name."""
    path = Path(options.path)
    present = npz.array_names(path)
    if options.label_array == "labels" and "labels" not in present:
        return None
    labels = npz.read_array(path, options.label_array)
    where = f"{path}: {options.label_array}"
    if labels.shape not in ((count,), (count, 1)):
        raise DataError(
            f"{where}: the array is {labels.dtype} {labels.shape}; save one integer or name per image, shape ({count},)"
        )
    has_names = "class_names" in present and labels.dtype.kind in "biuf"
    names = _read_names(path, float(labels.max())) if has_names else []
    _check_unicode(labels, where)
    return number_labels(labels.reshape(count).tolist(), where, "image {}".format, names)


def _read_names(path: Path, highest: float) -> list[str]:
    """Return the names of classes. highest: label."""
    names = npz.read_array(path, "class_names")
    is_text = names.dtype.kind == "U" and names.ndim == 1
    if not is_text or len(names) <= highest or len(np.unique(names)) < len(names):
        content = f"{len(names)} names" if is_text else f"{names.dtype} {names.shape}"
        raise DataError(
            f"{path}: class_names: the array holds {content}; save one name for each of {highest + 1:g} classes, as "
            "text, none of them twice"
        )
    _check_unicode(names, f"{path}: class_names")
    return list(map(str, names))


def _check_unicode(names: Values, where: str) -> None:
    """Raise `DataError` on invalid code points: numpy accepts any 32-bit number as one."""
    if names.dtype.kind != "U" or names.dtype.itemsize == 0:
        return
    codes = np.ascontiguousarray(names).view(np.dtype(np.uint32).newbyteorder(names.dtype.byteorder))
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise DataError(f"{where} contains numbers that are not Unicode characters; save the names again")
