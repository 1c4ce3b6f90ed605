"""Images of a generator as single files, or in one array: for scores by other programs, and for training on them."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder, write_bytes
from paragan.export.class_labels import Label
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import check_inputs
from paragan.runs.output_folder import prepare_output_folder
from paragan.runs.write_samples import SampleRequest, Update, file_name_word
from paragan.storage import npz

_RECORD = "sampled.json"
_DEFAULT_NUM = 64
Labels = Sequence[Label] | None  # of the images of a folder, in turn; None: drawn
_PILLOW: dict[str, dict[str, Any]] = {"png": {"format": "PNG"}, "webp": {"format": "WEBP", "lossless": True}}


def write_files(sampler: Sampler, request: SampleRequest, update: Update) -> Path:
    """Write `request.num` images to the folder or .npz file `request.out`, and return its path.

    Image number k is that of `Sampler.sample`, for any number of images, so that a stopped call continues and a
    larger number adds files. request.by_class: so many of each class, in a folder named after it. An array
    has the images as `arr_0`, uint8 (N, H, W, C), and the labels as `arr_1`, int64 (N,), if there are classes.
    """
    check_inputs(sampler, "sample --out DIR")
    assert request.out is not None
    num = request.num or _DEFAULT_NUM
    groups = _groups(sampler, request)
    total = num * len(groups)
    if request.out.suffix == ".npz":
        _write_array(sampler, request, num, list(groups.values()), lambda done: update(done, total))
        return request.out
    recorded = _sampling_arguments(request) | {"classes": request.classes, "by_class": request.by_class}
    recorded |= {"format": request.file_format, "standing_stats": request.standing_stats}
    prepare_output_folder(request.out, _RECORD, sampler, recorded)
    for number, (folder, labels) in enumerate(groups.items()):
        place = create_subfolder(request.out, folder) if folder else request.out
        for done in _write_images(sampler, request, num, labels, place):
            update(number * num + done, total)
    return request.out


def _groups(sampler: Sampler, request: SampleRequest) -> dict[str, Labels]:
    """Return the labels of each sub-folder; one without a name unless there is one for each class."""
    named = sampler.labels(len(request.classes), request.classes, option="--class") if request.classes else None
    numbers = None if named is None else named.tolist()
    if not request.by_class:
        return {"": numbers}
    if not sampler.class_names:
        raise ConfigError("--classes: this generator has no classes that it draws differently; leave --classes out")
    labels = range(sampler.num_classes) if numbers is None else numbers
    names = {number: file_name_word(sampler.class_names[number]) for number in labels}
    # also where capitals do not count, and next to the record
    is_unique = len({_RECORD, *(name.casefold() for name in names.values())}) == 1 + len(names)
    return {name if is_unique else f"{number}-{name}": [number] for number, name in names.items()}


def _sampling_arguments(request: SampleRequest) -> dict[str, Any]:
    return {"seed": request.seed, "truncation": request.truncation, "mode": request.mode, "steps": request.steps}


def _write_images(sampler: Sampler, request: SampleRequest, num: int, labels: Labels, folder: Path) -> Iterator[int]:
    """Write the files that are missing; yield how many are done."""
    names = [f"{row:06}.{request.file_format}" for row in range(num)]  # the same for any number
    present = set(os.listdir(folder))
    is_missing = [name not in present for name in names]
    for first, images in sampler.blocks(num, labels, **_sampling_arguments(request), is_wanted=is_missing):
        for row, image in enumerate(images, start=first):
            if is_missing[row]:
                content = io.BytesIO()
                image.save(content, **_PILLOW[request.file_format])
                write_bytes(folder / names[row], content.getvalue())
        yield first + len(images)


def _write_array(
    sampler: Sampler, request: SampleRequest, num: int, groups: Sequence[Labels], update: Callable[[int], None]
) -> None:
    assert request.out is not None
    channels, height, width = sampler.info.shape
    labels: list[int] = []  # filled while the rows are written

    def rows() -> Iterator[NDArray[np.uint8]]:
        for number, group in enumerate(groups):
            for first, images in sampler.blocks(num, group, **_sampling_arguments(request)):
                labels.extend(images.labels or ())
                yield images.to_bytes().permute(0, 2, 3, 1).numpy()
                update(number * num + first + len(images))

    shape = (num * len(groups), height, width, channels)
    npz.write_rows(request.out, "arr_0", shape, rows(), lambda: {"arr_1": np.array(labels)} if labels else {})
