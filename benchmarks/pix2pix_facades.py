"""Validation L1 of `pix2pix-facades` after 3 epochs against the best image that knows the labels alone.

Aim: at least 10 % lower than one constant colour per label class.

    python -m benchmarks.pix2pix_facades FACADES_TAR [epochs]

The constant of a class is the median of the training photos at its pixels, channel by channel: no other has a lower L1
there. Labels are the nearest of the 12 palette colours, for the files are JPEG. Both are measured on the 100 held-out
pairs, in values of [-1, 1]; 400 training pairs at batch 1, about 10 minutes on one core.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.record import write
from paragan import build
from paragan.config import read_recipe
from paragan.core.source import Source
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.pair_evaluator import PairEvaluator

PALETTE = [  # as counted in the files
    *((0, 0, 222), (0, 48, 255), (0, 128, 255), (0, 207, 255), (32, 255, 223), (112, 255, 143)),
    *((192, 255, 63), (255, 239, 0), (255, 159, 0), (255, 80, 0), (255, 0, 0), (175, 0, 0)),
]
AIM = 0.9


def classes(labels_BCHW: Tensor) -> Tensor:
    """The nearest palette colour of each pixel: int64 (B, H, W)."""
    colours = torch.tensor(PALETTE, dtype=torch.float32)
    pixels = labels_BCHW.float().permute(0, 2, 3, 1)
    return torch.cdist(pixels.reshape(1, -1, 3), colours[None]).argmin(2).view(pixels.shape[:3])


def medians(train: Source) -> Tensor:
    """uint8 (12, 3): of the photos' pixels of each class."""
    counts = torch.zeros(len(PALETTE), 3, 256, dtype=torch.int64)
    for row in range(len(train)):
        photo, labels = train.fetch(np.array([row])).values()
        kind = classes(labels)[0]
        for channel in range(3):
            at = kind.flatten() * 256 + photo[0, channel].flatten().long()
            counts[:, channel] += torch.bincount(at, minlength=len(PALETTE) * 256).view(-1, 256)
    half = (counts.sum(2, keepdim=True) + 1) // 2
    return (counts.cumsum(2) < half).sum(2).to(torch.uint8)


def constant(train: Source, held_out: Source) -> dict[str, float]:
    """Scores of the image that paints every class in its median colour."""
    colours = medians(train).float() / 127.5 - 1

    def painted(first: int, condition: Tensor) -> Tensor:
        return colours[classes((condition + 1) * 127.5)].permute(0, 3, 1, 2)

    return (
        PairEvaluator(held_out=held_out, options=EvaluationOptions(num_images=len(held_out), resamples=0))
        .score(painted)
        .metrics
    )


def trained(data: str, epochs: int) -> tuple[list[dict[str, float]], float]:
    """Scores after each epoch as a user would get them, and the seconds it took."""
    kimg = 0.4 * epochs
    words = [f"data.path={data}", f"train.kimg={kimg:g}", "every.sample_kimg=0", "every.save_kimg=0"]
    config = read_recipe("pix2pix-facades", words)
    began, found = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        trainer = build.trainer(config, Path(folder), print, lambda: False)
        for event in trainer.run():
            if event.kind == "score":
                metrics = {name: value for name, value in event.values.items() if isinstance(value, float)}
                found.append(metrics)
                rounded = {name: round(value, 4) for name, value in metrics.items()}
                print(f"{event.images} images, {time.monotonic() - began:.0f} s: {rounded}", flush=True)
    return found, time.monotonic() - began


def main(data: str, epochs: int = 3) -> None:
    config = read_recipe(
        "pix2pix-facades", [f"data.path={data}", "data.load_size=256"]
    )  # no crop: whole training photos
    found = build.open_data(config)
    baseline = constant(found.train, found.held_out)
    print("constant colour per class:", {name: round(value, 4) for name, value in baseline.items()}, flush=True)
    scores, seconds = trained(data, epochs)
    ratio = scores[-1]["l1"] / baseline["l1"]
    print(f"l1 after {epochs} epochs / l1 of the constants: {ratio:.3f}, aim at most {AIM}")
    found = {"constant": baseline, "after each epoch": scores, "seconds": round(seconds), "ratio": ratio}
    write("pix2pix-facades", found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], *(int(a) for a in sys.argv[2:]))
