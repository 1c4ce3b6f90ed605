"""NumPy archive: images and labels in one npz file written by `numpy.savez`, held in memory.

Source: your file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, Interval
from paragan.core.source import Source
from paragan.datasets._encoded_images import NumberedClasses, number_classes
from paragan.datasets.base.in_memory import InMemorySource, compute_fingerprint, stratified_split
from paragan.storage import npz

_CHANNELS = (1, 3)


@dataclass(frozen=True, kw_only=True)
class Options:
    """An .npz file with uint8 images, integer labels and class names.

    Images are (N, H, W, C), (N, C, H, W) or (N, H, W), labels (N,) or (N, 1).
    """

    path: FilePath = ""
    """The .npz file."""
    image_array: str = "images"
    """Name of the image array."""
    label_array: str = "labels"
    """Name of the label array; optional in the file."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of each class held out from training."""
    flip: bool = False
    """Mirror half of the training images, chosen at random in every epoch."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of shape (C, H, W). Raises `DataError` for a missing or invalid array."""
    images_NCHW = _read_images(options)
    classes = _read_classes(options, len(images_NCHW))
    strata_N = np.zeros(len(images_NCHW)) if classes is None else classes.labels
    labels_N = torch.from_numpy(strata_N.astype(np.int64))
    rows = stratified_split(labels_N, round(1 / options.held_out), "npz")[split]
    fingerprint = compute_fingerprint(
        Path(options.path), options.image_array, options.label_array, options.held_out, split
    )
    images_NCHW = images_NCHW[rows].contiguous()
    if classes is None:
        return InMemorySource(images_NCHW, fingerprint=fingerprint)
    labelled = InMemorySource(images_NCHW, labels_N[rows], classes.names, fingerprint)
    labelled.notices = classes.notices
    return labelled


def _read_images(options: Options) -> Tensor:
    """Return the images of a file, uint8 (N, C, H, W); `DataError` if they are missing or invalid."""
    path = Path(options.path)
    if not options.path or not path.is_file():
        raise DataError(f"data.path: no file {options.path!r}; pass an npz file: data.path=FILE.npz")
    return _check_images(npz.read_array(path, options.image_array), f"{path}: {options.image_array}")


def _check_images(array: NDArray[Any], where: str) -> Tensor:
    if array.dtype != np.uint8:
        raise DataError(f"{where}: the array is {array.dtype}; convert it to uint8 (0 to 255) and save it again")
    images = torch.from_numpy(array[..., None] if array.ndim == 3 else array)
    if images.ndim == 4 and images.shape[-1] in _CHANNELS:
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in _CHANNELS or 0 in images.shape:
        raise DataError(f"{where}: the shape is {array.shape}; save (N, H, W, C) or (N, C, H, W) with C 1 or 3")
    if len(images) < 2:
        raise DataError(f"{where}: only one image; at least two are required")
    return images


def _read_classes(options: Options, count: int) -> NumberedClasses | None:
    """Return labels and class names; None if the file has no array under the default name."""
    path = Path(options.path)
    present = npz.array_names(path)
    if options.label_array == "labels" and "labels" not in present:
        return None
    labels = npz.read_array(path, options.label_array)
    where = f"{path}: {options.label_array}"
    if labels.dtype.kind not in "iu" or labels.shape not in ((count,), (count, 1)):
        raise DataError(
            f"{where}: the array is {labels.dtype} {labels.shape}; save one integer per image, shape ({count},)"
        )
    labels = labels.reshape(count)
    if "class_names" not in present:
        return number_classes(labels, where)
    names = npz.read_array(path, "class_names")
    if names.dtype.kind != "U" or names.ndim != 1 or len(names) <= labels.max():
        is_text = names.dtype.kind == "U" and names.ndim == 1
        content = f"{len(names)} names" if is_text else f"{names.dtype} {names.shape}"
        raise DataError(
            f"{path}: class_names: the array holds {content}; save one name for each of {int(labels.max()) + 1} classes"
        )
    _check_unicode(names, f"{path}: class_names")
    return number_classes(labels, where, tuple(map(str, names)))


def _check_unicode(names: NDArray[Any], where: str) -> None:
    """Raise `DataError` on invalid code points: numpy accepts any 32-bit number as one."""
    if names.dtype.itemsize == 0:
        return
    codes = np.ascontiguousarray(names).view(np.dtype(np.uint32).newbyteorder(names.dtype.byteorder))
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise DataError(f"{where} contains numbers that are not Unicode characters; save the names again")
