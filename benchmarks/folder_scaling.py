"""What a folder costs at n, 2n and 4n images: start-up, memory, and the time to the first batch of a resumed run.

python -m benchmarks.folder_scaling [n]

The images are 8x8 PNG files, 1,000 distinct ones; the others are hard links to them, so that writing them takes
seconds. Each measurement is a fresh process with warm directories, times are CPU seconds. `listing_s` is one walk and
sort; `start_s` is both parts, which list once each, then hash the names to draw the parts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.record import write
from paragan.datasets import _image_paths, folder
from paragan.loading.loader import Loader

DISTINCT, CLASSES, BATCH, BATCHES, LATE = 1000, 10, 64, 200, 10**6


def make(root: Path, count: int) -> None:
    """`count` files in ten class folders."""
    noise = np.random.default_rng(0).integers(0, 256, (DISTINCT, 8, 8, 3), np.uint8)
    originals = root / ".originals"  # hidden: not part of the set
    originals.mkdir()
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).save(originals / f"{number}.png")
    for label in range(CLASSES):
        (root / f"class-{label}").mkdir()
    for number in range(count):
        os.link(originals / f"{number % DISTINCT}.png", root / f"class-{number % CLASSES}" / f"{number:07d}.png")


def measure(root: str) -> dict[str, Any]:
    """In this process: CPU seconds and MiB."""
    torch.set_num_threads(1)
    options = folder.Options(path=root, size=8)
    before = memory("VmRSS")
    began = time.process_time()
    count = len(_image_paths.find_images(Path(root)))
    listing = time.process_time() - began
    began = time.process_time()
    train, held_out = (folder.source(options, split) for split in ("train", "held_out"))
    start = time.process_time() - began
    loader = Loader(train, BATCH, 0, torch.device("cpu"))
    first = seconds(loader)
    for _ in range(BATCHES):
        next(loader)
    resumed = Loader(train, BATCH, 1, torch.device("cpu"))
    resumed.position = LATE
    return {
        "images": count,
        "listing_s": listing,
        "start_s": start,
        "first_batch_s": first,
        "first_batch_resumed_s": seconds(resumed),
        "fingerprint_s": seconds(iter(lambda: (train.fingerprint, held_out.fingerprint), None)),
        "mib_before": before,
        "mib_after": memory("VmRSS"),
        "mib_peak": memory("VmHWM"),
    }


def seconds(iterator: Any) -> float:
    """Of one item."""
    began = time.process_time()
    next(iterator)
    return time.process_time() - began


def memory(kind: str) -> float:
    """VmRSS now, VmHWM at most, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(kind))


def main(smallest: int) -> None:
    measured = []
    for count in (smallest, 2 * smallest, 4 * smallest):
        with tempfile.TemporaryDirectory() as root:
            make(Path(root), count)
            command = [sys.executable, "-m", "benchmarks.folder_scaling", root]
            runs = [json.loads(subprocess.check_output(command, timeout=300)) for _ in range(3)]
        best = {key: round(min(run[key] for run in runs), 5) for key in runs[0]}  # others use the machine, too
        best["start_beyond_two_listings_us_per_image"] = round(
            (best["start_s"] - 2 * best["listing_s"]) / count * 1e6, 2
        )
        measured.append(best)
        print(json.dumps(best), flush=True)
    write("folder-scaling", {"note": __doc__, "batches": BATCHES, "batch": BATCH, "best_of_3": measured})


if __name__ == "__main__":
    argument = sys.argv[1] if len(sys.argv) > 1 else "50000"
    if argument.isdecimal():
        main(int(argument))
    else:
        print(json.dumps(measure(argument)))
