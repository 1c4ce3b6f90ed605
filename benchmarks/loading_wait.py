"""Share of a step in which training waits for data: SNGAN at 64 px on a folder of JPEG photos of 500x375.

python -m benchmarks.loading_wait [--steps 12] [--width 64] [--batch 64]

`decodes itself` is loading.prefetch=0, the training thread without a pipeline. `data_wait` of the record, median over
the log points after the first; it includes moving the batch to the device and mapping it to [-1, 1].
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import paragan as pg
from benchmarks.loading import make
from benchmarks.record import write
from paragan.config import read_recipe
from paragan.datasets import _image_source

HOW = {"decodes itself": ("loading.prefetch=0",), "pipeline": ()}


def waits(photos: Path, out: Path, steps: int, width: int, batch: int, settings: tuple[str, ...]) -> dict[str, Any]:
    """Train some steps; return the share of time and the CPU seconds per step."""
    words = [
        "data={name: folder, size: 64}",
        f"data.path={photos}",
        f"model.width={width}",
        "model.conditional=false",
    ]
    words += [f"train.batch={batch}", f"train.kimg={steps * 5 * batch / 1000}", "every.log_steps=1"]
    words += ["evaluation.features=null", "every.sample_kimg=0", "every.score_kimg=0", *settings]
    began = time.process_time()
    run = pg.train(read_recipe("sngan-cifar10", words), out=out)
    seconds = time.process_time() - began
    found = [row["data_wait"] for row in run.history if row.get("data_wait") is not None]
    return {"data_wait": statistics.median(found[1:]), "largest": max(found[1:]), "cpu_s_per_step": seconds / steps}


def main() -> None:
    """Measure each way, and write the results."""
    _image_source.CACHE_BYTES = 0  # every image is decoded
    parser = argparse.ArgumentParser()
    for name, default in {"steps": 12, "width": 64, "batch": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    found: dict[str, Any] = dict(options)
    with tempfile.TemporaryDirectory() as folder:
        photos = make(Path(folder) / "photos", 1200, 500, 375)
        for number, (name, settings) in enumerate(HOW.items()):
            found[name] = waits(photos, Path(folder) / str(number), settings=settings, **options)
            print(name, found[name], flush=True)
    write("loading-wait", found)


if __name__ == "__main__":
    main()
