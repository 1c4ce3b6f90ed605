"""Preparation of shards from any source (`paragan data prepare`): parallel, resumable, in bounded memory."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import PIL
from PIL import Image

from paragan.core.addresses import is_url
from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.core.option_types import height_and_width
from paragan.datasets._damaged_images import exclude_damaged
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._image_decoding import decode_image
from paragan.datasets._image_formats import image_suffix
from paragan.datasets._options import FolderOptions, PixelOptions
from paragan.datasets._pixel_format import PixelFormat
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import parse_size
from paragan.storage.byte_store import StoredFile
from paragan.storage.shard_folder import INDEX, VERSION, Encoding, ShardDescription, ShardFolder
from paragan.storage.shard_writer import EncodedSample, ShardWriter, open_shard_writer

SAMPLES_PER_SHARD = 1000
JPEG_QUALITY = 95
_MAX_THREADS = min(len(os.sched_getaffinity(0)), 16)
_OF_PIXELS = ("channels", "crop", "background", "range")  # settings that change what is stored
_SUFFIXES = {"png": ".png", "jpeg": ".jpg"}


@dataclass(frozen=True)
class PreparedShards:
    """Result of a preparation. num_written: shards written now. summary: what was read, in words."""

    folder: ShardFolder
    num_written: int
    notices: tuple[str, ...]
    summary: str


def prepare_shards(
    source: str,
    out: Path,
    encoding: Encoding | None = None,
    samples_per_shard: int = SAMPLES_PER_SHARD,
    threads: int | None = None,
    options: FolderOptions | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PreparedShards:
    """Write the images of a source as shards into the folder `out`; continue where it was stopped.

    encoding: None: the files are stored unchanged. threads: each writes one shard at a time and holds one image; None:
    one per CPU core, at most 16. options: classes, labels and damaged: `skip` decodes all image files first and leaves
    out those that cannot be decoded. progress: receives the number of samples done and the total of this call. Raises
    `DataError` for a source that cannot be read, for the first damaged image, and for a folder with other content.
    """
    options = options or FolderOptions()
    labels = options.labels if isinstance(options.labels, str) else ""
    images = open_encoded_images(source, "SRC", options.classes, labels)
    if options.damaged == "skip":
        images = exclude_damaged(images, decode_image, "prepare", source)
    name = source if is_url(source) else str(Path(source).resolve())
    # a stamp may end with a time, by which edits of equal size are seen
    newest_ns = max(int(images.stamp(row).partition(" ")[2] or 0) for row in range(len(images)))
    with open_shard_writer(out, _plan(images, encoding, samples_per_shard), name, newest_ns) as writer:
        missing = [] if writer is None else writer.missing()
        if writer is not None:
            _write_all(images, encoding, writer, missing, threads or _MAX_THREADS, progress)
            writer.finish()
    rows = np.arange(len(images), dtype=np.uint32)
    warnings = () if encoding is None else _pixels_of(encoding).warnings(images, rows)
    return PreparedShards(ShardFolder(out), len(missing), (*images.notices, *warnings), images.describe())


def _plan(images: EncodedImages, encoding: Encoding | None, samples_per_shard: int) -> ShardDescription:
    return ShardDescription(
        format="paragan-shards",
        version=VERSION,
        num_samples=len(images),
        samples_per_shard=samples_per_shard,
        num_train=images.num_train,
        class_names=images.class_names,
        encoding=encoding,
        source=images.portable_fingerprint(),
        index=StoredFile(INDEX, 0, "0" * 64),  # not written yet
        shards=(),
    )


def _write_all(
    images: EncodedImages,
    encoding: Encoding | None,
    writer: ShardWriter,
    missing: list[int],
    threads: int,
    progress: Callable[[int, int], None],
) -> None:
    """Write the missing shards in threads; the first error stops all of them."""
    total = sum(len(writer.rows(number)) for number in missing)
    done = 0
    stopped = threading.Event()
    lock = threading.Lock()

    def write(number: int) -> None:
        writer.write(number, encoded_samples(writer.rows(number)))

    def encoded_samples(rows: range) -> Iterator[EncodedSample]:
        nonlocal done
        for row, data in zip(rows, images.scan(rows), strict=True):
            if stopped.is_set():
                raise CancelledError  # a shard that ends here would be taken as written
            image, suffix = _encode(data, images.where(row), encoding)
            label = -1 if images.labels is None else int(images.labels[row])
            yield EncodedSample(image, suffix, label, int(images.split_hashes[row]))
            with lock:
                done += 1
                progress(done, total)

    pool = ThreadPoolExecutor(max(1, min(threads, len(missing))), "prepare")
    try:
        for written in as_completed([pool.submit(write, number) for number in missing]):
            written.result()
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _encode(data: bytes, where: str, encoding: Encoding | None) -> tuple[bytes, str]:
    """Return an image file as it is stored, and its suffix."""
    if encoding is None:
        suffix = image_suffix(data)
        if suffix is None:
            raise DataError(
                f"{where}: not an image in a supported format; "
                f"list all such files with `{program_command()} data check`, or pass data.damaged=skip"
            )
        return data, suffix
    x_CHW = _pixels_of(encoding).decode(data, where)
    image = Image.fromarray(x_CHW[0] if encoding.channels == 1 else x_CHW.transpose(1, 2, 0))
    stream = io.BytesIO()
    if encoding.format == "jpeg":
        image.save(stream, "JPEG", quality=encoding.quality, subsampling=0)
    else:
        image.save(stream, "PNG")
    return stream.getvalue(), _SUFFIXES[encoding.format]


def _pixels_of(encoding: Encoding) -> PixelFormat:
    crop: Literal["center", "squash"] = "center" if encoding.crop == "center" else "squash"
    options = PixelOptions(channels=encoding.channels, crop=crop, background=encoding.background, range=encoding.range)
    return PixelFormat(size=height_and_width(encoding.size), options=options)


def make_encoding(
    size: int | str | None, options: FolderOptions, settings: Sequence[str], name: str, quality: int | None
) -> Encoding | None:
    """Return how images are stored; None: unchanged. settings: words that were written. Raises `DataError`."""
    keys = {word.partition("=")[0].removeprefix("data.") for word in settings}
    size = parse_size(options.size if size is None and "size" in keys else size)
    stored_keys = {"size", "classes", "labels", "damaged", *(() if size is None else _OF_PIXELS)}
    if keys - stored_keys:
        fix = "pass it to `train`" if size else f"pass it to `train`, or --size with {', '.join(_OF_PIXELS)}"
        raise DataError(f"data.{min(keys - stored_keys)} changes nothing that is stored; {fix}")
    if options.channels not in (1, 3) or options.crop not in ("center", "squash"):
        raise DataError("shards of a --size hold 1 or 3 channels, data.crop=center or squash; leave --size out")
    if name == "jpeg" and size is None:
        raise DataError("--format jpeg needs --size; without it, the files of the source are stored unchanged")
    if quality is not None and (name != "jpeg" or not 1 <= quality <= 100):
        raise DataError(f"--quality {quality} is not supported; it is 1 to 100, for --format jpeg")
    if size is None:
        return None
    return Encoding(
        size=size,
        channels=options.channels,
        crop=options.crop,
        background=options.background,
        range=options.range,
        filter="lanczos",
        format=name,
        quality=(quality or JPEG_QUALITY) if name == "jpeg" else None,
        pillow=PIL.__version__,
    )
