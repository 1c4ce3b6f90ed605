"""Shards: images that `data prepare` has packed into tar files with an index, read at random from disk or network.

Source: your images. The tar files follow the WebDataset format, https://github.com/webdataset/webdataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from paragan.core.addresses import is_url
from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, ImageSize, Interval, Natural, height_and_width
from paragan.core.source import Source
from paragan.datasets._encoded_images import ShardImages
from paragan.datasets._image_source import ImageSource
from paragan.datasets._options import PixelOptions, secret_in_url
from paragan.datasets._pixel_format import PixelFormat
from paragan.datasets.base.in_memory import compute_fingerprint
from paragan.storage.disk_cache import DiskCache
from paragan.storage.shard_folder import Encoding, ShardFolder

_DEFAULT_SIZE = 64


@dataclass(frozen=True, kw_only=True)
class Options(PixelOptions):
    """A folder written by `data prepare`, local or remote: shards of images with an index.

    Samples, classes and the two splits are those of the folder, zip or tar file they were made of.
    """

    path: FilePath = ""
    """The folder with `dataset.json`, or its address: http(s)://, s3://, gs:// or az://."""
    size: ImageSize | None = None
    """Size in pixels, a number or HEIGHTxWIDTH; null: that of `data prepare --size`, else 64."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of the images held out from training, if the source had no folders `train` and `val`."""
    disk_cache_mb: Natural = 16384
    """MiB of remote shards cached on the local disk, in PARAGAN_CACHE or ~/.cache/paragan; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if problem := secret_in_url(self.path):
            raise ValueError(problem)


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of shape (channels, height, width).

    Only the index is read; a damaged sample raises `DataError` when it is fetched. Raises
    `DataError` if the folder holds no finished shards.
    """
    if not options.path:
        raise DataError("data.path is required for dataset 'shards'; pass data.path=DIR, as made by `data prepare`")
    folder = ShardFolder(options.path, options.disk_cache_mb << 20)
    encoding = folder.description.encoding
    size = options.size or (encoding.size if encoding else _DEFAULT_SIZE)
    images = ShardImages(folder, (*_notices(options, encoding, size), *_cache_notice(options, folder)))
    rows = images.rows(split, options.held_out)
    if not len(rows):
        purpose = "train on" if split == "train" else "hold out"
        raise DataError(
            f"{folder.address} has no images to {purpose}; prepare the data again, from two images at least"
        )
    pixels = PixelFormat(size=height_and_width(size), options=options)
    warnings = () if is_url(options.path) else pixels.warnings(images, rows)
    settings = [size, options.channels, options.held_out, split, pixels.settings]
    return ImageSource(
        images=images,
        rows=rows,
        shape=pixels.shape,
        decode=pixels.decode,
        identify=partial(compute_fingerprint, folder.description.index.sha256, *settings),
        dtype=pixels.dtype,
        draws_crops=options.crop == "random" and split == "train",
        notices=() if split == "held_out" else warnings,
    )


def _notices(options: Options, encoding: Encoding | None, size: int | str) -> tuple[str, ...]:
    """Return a warning if the images were prepared for other settings."""
    if encoding is None:
        return ()
    lines = []
    if size != encoding.size:
        fix = f"data.size={encoding.size} uses them unchanged, `data prepare --size {size}` resizes the originals"
        lines.append(f"data.size={size}: images of {encoding.size} px are resized a second time; {fix}")
    if options.channels > encoding.channels:
        lines.append("data.channels=3: the shards hold grey images; pass data.channels=1")
    return tuple(lines)


def _cache_notice(options: Options, folder: ShardFolder) -> tuple[str, ...]:
    """Return a warning if remote shards do not fit into the disk cache."""
    limit_mb = options.disk_cache_mb
    needed = sum(shard.num_bytes for shard in folder.description.shards)
    capacity = DiskCache(limit_mb << 20).capacity_bytes
    if not is_url(options.path) or not limit_mb or needed <= capacity:
        return ()
    problem = f"only the first {capacity >> 20:,} of {needed >> 20:,} MiB of shards are cached"
    required_mb = -(-needed * 8 // 7 >> 20) + 1  # the cache uses seven eighths of its limit
    return (f"data.disk_cache_mb={limit_mb}: {problem}; raise it to {required_mb}",)
