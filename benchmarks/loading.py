"""Loading: CPU per image against a plain Pillow loop, cost per sample, start-up, memory, and the wait of training.

python -m benchmarks.loading [--pairs 7]

JPEG files are smooth noise. CPU seconds of this process, interleaved pairs; every row names what it compares. A loop of
the pipeline counts the images it decoded, also those ahead of the consumer.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from benchmarks.record import write
from paragan.core.source import EncodedSource, Source, TensorSpec
from paragan.datasets import _image_source
from paragan.loading import TensorBatches, open_images
from paragan.loading.loader import Loader
from paragan.loading.pipeline import Pipeline
from tests.prepared_shards import prepared

BATCH = 64
SIZE = 64
CPU = torch.device("cpu")
INDEXED = 1_300_000
LIMITS = {  # readers, decoders
    "decoders read, 1 thread": (0, 1),
    "1 reader, 1 decoder": (1, 1),
    "decoders read, 2 threads": (0, 2),
    "2 readers, 2 decoders": (2, 2),
    "16 readers, 2 decoders": (16, 2),
}
DEPTH = 4


def make(root: Path, count: int, width: int, height: int) -> Path:
    """A folder of JPEG files: 200 originals, and links to them."""
    root.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 3), np.uint8)
    for number in range(count):
        path = root / f"{number:06}.jpg"
        if number < len(noise):
            Image.fromarray(noise[number]).resize((width, height)).save(path, quality=90)
        else:
            os.link(root / f"{number % len(noise):06}.jpg", path)
    return root


def pillow_loop(source: Source, batches: int) -> int:
    """What a loop without any library does: the same rows, pixels and shapes."""
    order = Loader(source, BATCH, 0, CPU)
    draw = np.random.default_rng(0)
    for position in range(batches):
        images = []
        for row in order.rows_at(position)[0]:
            with Image.open(source.where(int(row))) as file:
                image = ImageOps.fit(file.convert("RGB"), (SIZE, SIZE), Image.Resampling.LANCZOS)
            if draw.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            images.append(torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()))
        torch.stack(images)
    return batches * BATCH


def pipeline_loop(source: Counted, readers: int, decoders: int, batches: int) -> int:
    """The same by the pipeline; returns the images that it decoded."""
    source.num_decoded = 0
    pipeline = Pipeline(Loader(source, BATCH, 0, CPU, flip=source.is_image), DEPTH, readers, decoders)
    for position in range(batches):
        pipeline.position = position
        pipeline.fetch_next()
    pipeline.close()
    return source.num_decoded


class Counted(EncodedSource):
    """A source that counts the samples it decodes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tensors = source.tensors
        self.fingerprint = source.fingerprint
        self.is_image = "image" in source.tensors
        self.num_decoded = 0

    def __len__(self) -> int:
        return len(self.source)

    def read(self, rows):
        return self.source.read(rows)

    def decode(self, encoded, rows, places=None, seed=0):
        self.num_decoded += len(encoded)
        return self.source.decode(encoded, rows, places, seed)


class Empty(EncodedSource):
    """Samples that cost nothing: what remains is the pipeline."""

    fingerprint = "empty"

    def __init__(self) -> None:
        self.tensors = {"number": TensorSpec((), torch.int64)}

    def __len__(self) -> int:
        return 10_000

    def read(self, rows):
        return [b""] * len(rows)

    def decode(self, encoded, rows, places=None, seed=0):
        return {"number": torch.from_numpy(rows)}


def per_image(work: Callable[[], int]) -> float:
    """CPU microseconds per sample."""
    began = time.process_time()
    count = work()
    return (time.process_time() - began) / count * 1e6


def paired(loop: Callable[[], int], ours: Callable[[], int], pairs: int) -> dict[str, Any]:
    """Medians of both, and of the ratio of a pair: 1 or more where the pipeline needs no more than the loop."""
    loop()
    ours()
    both = np.array([(per_image(loop), per_image(ours)) for _ in range(pairs)])
    ratios = both[:, 0] / both[:, 1]
    return {
        "loop_us": round(float(np.median(both[:, 0])), 1),
        "pipeline_us": round(float(np.median(both[:, 1])), 1),
        "ratio": round(float(np.median(ratios)), 3),
        "quartiles": np.percentile(ratios, [25, 75]).round(3).tolist(),
    }


def per_core(folder: Path, batches: int, pairs: int) -> dict[str, Any]:
    """A row for each number of threads."""
    plain = open_images(folder, size=SIZE)
    counted = Counted(open_images(folder, size=SIZE))
    loop = partial(pillow_loop, plain, batches)
    found = {}
    for name, limits in LIMITS.items():
        found[name] = paired(loop, partial(pipeline_loop, counted, *limits, batches), pairs)
    return found


def overhead(pairs: int) -> dict[str, float]:
    """CPU microseconds per sample of batches of 64 that need no decoding."""
    source = Counted(Empty())
    return {
        name: round(min(per_image(partial(pipeline_loop, source, *limits, 500)) for _ in range(pairs)), 2)
        for name, limits in LIMITS.items()
    }


def scaling(root: Path, pairs: int) -> dict[str, float]:
    """CPU microseconds per image over an epoch of n, 2n and 4n files, of which every tenth is held out."""
    found = {}
    for count in (2500, 5000, 10_000):
        source = Counted(open_images(make(root / str(count), count, 80, 64), size=SIZE))
        work = partial(pipeline_loop, source, 0, 2, len(source) // BATCH)
        found[f"{count:,}"] = round(min(per_image(work) for _ in range(pairs)), 1)
    return found


def indexed(root: Path) -> dict[str, Any]:
    """Start-up and memory of shards with 1.3 million samples: 1,300 links to one shard."""
    prepared(make(root / "images", 1000, 80, 64), root / "shards", samples_per_shard=1000)
    folder = root / "shards"
    index = (folder / "index.bin").read_bytes()
    copies = INDEXED // 1000
    (folder / "index.bin").write_bytes(index * copies)
    description = json.loads((folder / "dataset.json").read_text())
    (shard,) = description["shards"]
    for number in range(1, copies):
        os.link(folder / shard["name"], folder / f"shard-{number:06}.tar")
    description["num_samples"] = INDEXED
    description["shards"] = [{**shard, "name": f"shard-{number:06}.tar"} for number in range(copies)]
    description["index"]["num_bytes"] *= copies
    (folder / "dataset.json").write_text(json.dumps(description))
    before = rss_mib()
    began = time.process_time()
    batches = TensorBatches(open_images(folder, size=SIZE), BATCH)
    opened = time.process_time()
    next(batches)
    first = time.process_time()
    at_first = rss_mib()
    for _ in range(200):
        next(batches)
    found = {
        "open_cpu_s": round(opened - began, 3),
        "first_batch_cpu_s": round(first - opened, 3),
        "mib_at_the_first_batch": round(at_first - before, 1),
        "mib_after_200_batches": round(rss_mib() - before, 1),
        "index_mib": round(len(index) * copies / 2**20, 1),
    }
    batches.close()
    return found


def rss_mib() -> float:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Measure, and write the results."""
    _image_source.CACHE_BYTES = 0  # every image is decoded
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        small = make(root / "small", 1200, 80, 64)
        photos = make(root / "photos", 600, 500, 375)
        found = {
            "overhead_us_per_sample": overhead(pairs),
            "80x64_to_64": per_core(small, 16, pairs),
            "500x375_to_64": per_core(photos, 4, pairs),
            "us_per_image_at_n": scaling(root / "scaling", pairs),
            "1.3_million": indexed(root / "indexed"),
        }
    print(json.dumps(found, indent=1))
    write("loading", found)


if __name__ == "__main__":
    main()
