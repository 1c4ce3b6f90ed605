"""Projection of an image file, written next to a run: a sheet, and the latent as safetensors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from paragan.core.errors import ConfigError
from paragan.core.files import atomic_write, create_subfolder
from paragan.datasets.base.file_readers import FolderReader
from paragan.datasets.base.whole_images import decode_cropped
from paragan.export.projection import project
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import check_inputs
from paragan.loading.normalise import normalise
from paragan.storage.image_formats import check_sheet_path


def write_projection(
    sampler: Sampler,
    path: Path,
    image: Path,
    *,
    label: str | None,
    steps: int,
    seed: int | None,
    out: Path | None,
    progress: Callable[[int], None],
) -> dict[str, Any]:
    """Write the files; return their paths, the class by name and the mean squared error.

    path: run folder or file of the generator. label: class of the image; None: found with the latent.
    out: file of the sheet; None: in `projections`, next to the generator.
    """
    check_inputs(sampler, "project")
    if out is not None:
        check_sheet_path("--out", out)
    if label is not None:
        sampler.labels(1, label, option="--class")
    if not image.is_file():
        raise ConfigError(f"project: {image} is not a file; pass an image, such as photo.png")
    channels, height, width = sampler.info.shape
    data = FolderReader(image.parent).read(image.name)
    target = normalise(decode_cropped(data, str(image), (channels, height, width)))
    folder = path if path.is_dir() else path.parent
    sheet = out or create_subfolder(folder, "projections") / f"{image.stem}.png"  # which may fail, before the search
    projection = project(sampler, target, label, steps, seed, progress)
    SampledImages(torch.cat([target[None], projection.image_1CHW])).save(sheet, 2)
    latent = sheet.with_suffix(".safetensors")
    tensors = {"z": projection.z_1Z} | ({} if projection.y_1 is None else {"y": projection.y_1})
    with atomic_write(latent) as file:
        file.write(save(tensors))
    class_name = None
    if projection.y_1 is not None:
        number = int(projection.y_1)
        class_name = sampler.class_names[number] if number < len(sampler.class_names) else str(number)
    return {"image": str(sheet), "latent": str(latent), "class": class_name, "error": projection.error}
