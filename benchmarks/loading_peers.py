"""Images against a loop without any library: Pillow in a `torch.utils.data.DataLoader`, on the same files.

    python -m benchmarks.loading_peers [--pairs 7]

CPU microseconds per image of all processes, which is the inverse of images per second at equal cores: two worker
processes there, two decoding threads here. Both crop to a square, resize to 64 px by Lanczos, flip half, and give
float32 in [-1, 1]. `first epoch`: every image is decoded; `later epochs`: with the cache of decoded images. Shards
and Parquet hold the bytes of the files, which the loop reads from the folder.
"""

from __future__ import annotations

import argparse
import io
import resource
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

from benchmarks.loading import BATCH, SIZE, make
from benchmarks.paired_timing import Ratio, compare, keep
from paragan.datasets import _image_source
from paragan.loading import TensorBatches, open_images
from tests.prepared_shards import prepared

KINDS = {"small": (640, 80, 64), "photos": (384, 500, 375)}  # images, width, height


class Files(Dataset[torch.Tensor]):
    """Images of a folder, or of a zip file, by Pillow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.zip: zipfile.ZipFile | None = None  # opened in each worker
        if path.is_dir():
            self.names = sorted(file.name for file in path.iterdir())
        else:
            with zipfile.ZipFile(path) as file:
                self.names = file.namelist()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> torch.Tensor:
        with Image.open(self._file(self.names[row])) as file:
            image = ImageOps.fit(file.convert("RGB"), (SIZE, SIZE), Image.Resampling.LANCZOS)
        if torch.rand(()) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()).float() / 127.5 - 1

    def _file(self, name: str) -> Any:
        if self.path.is_dir():
            return self.path / name
        self.zip = self.zip or zipfile.ZipFile(self.path)
        return io.BytesIO(self.zip.read(name))


def loop(path: Path, batches: int) -> Callable[[], None]:
    """An epoch of the loop."""
    loader = DataLoader(Files(path), BATCH, shuffle=True, num_workers=2, drop_last=True)

    def run() -> None:
        assert sum(1 for _ in loader) == batches

    return run


def ours(path: Path, batches: int, warm: bool) -> Callable[[], None]:
    """As many batches of the library, and the one that it decodes ahead. warm: with the images in the cache."""
    _image_source.CACHE_BYTES = 256 << 20 if warm else 0
    source = open_images(path, size=SIZE, held_out=0)

    def run() -> None:
        stream = TensorBatches(source, BATCH, flip=True, depth=1, decoders=2)
        for _ in range(batches):
            next(stream)
        stream.close()

    if warm:
        run(), run()
    return run


def cpu_s() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measured(root: Path, pairs: int) -> dict[str, Ratio]:
    ratios = {}
    for kind, (count, width, height) in KINDS.items():
        folder = make(root / kind, count, width, height)
        archive = root / f"{kind}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(folder.iterdir()):
                file.write(path, path.name)
        prepared(folder, root / f"{kind}-shards", samples_per_shard=100)
        table = pa.table({"image": [path.read_bytes() for path in sorted(folder.iterdir())]})
        pq.write_table(table, root / f"{kind}.parquet", row_group_size=100)
        places = {
            "folder": (folder, folder),
            "zip": (archive, archive),
            "shards": (folder, root / f"{kind}-shards"),
            "parquet": (folder, root / f"{kind}.parquet"),
        }
        for form, (plain, path) in places.items():
            for epoch, warm in (("first epoch", False), ("later epochs", True)):
                batches = count // BATCH
                pair = loop(plain, batches), ours(path, batches, warm)
                ratios[f"{kind}, {form}, {epoch}: loop / library"] = compare(*pair, pairs, 1, clock=cpu_s)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as name:
        ratios = measured(Path(name), pairs)
    sizes = ", ".join(f"{kind}: {count} JPEG of {w} x {h}" for kind, (count, w, h) in KINDS.items())
    keep("loading-peers", ratios, f"{sizes}, to {SIZE} px, batch {BATCH}; 2 worker processes, 2 decoding threads")


if __name__ == "__main__":
    main()
