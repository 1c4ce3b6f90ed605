"""Share of a step in which training waits for a `Dataset` of 5 ms a sample, read ahead by processes and not.

python -m benchmarks.dataset_wait [--steps 150] [--batch 8] [--repeats 3] [--busy]

The game is a convolutional one whose step takes some 60 ms on two cores. `--busy`: samples compute for 5 ms instead of
waiting for storage. `data_wait` of the record at the end, with the start of the processes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import paragan as pg
from benchmarks.record import write

SAMPLE_S = 0.005


class Slow(Dataset[dict[str, Tensor]]):
    """Noise that takes 5 ms a sample."""

    def __init__(self, is_busy: bool) -> None:
        self.is_busy = is_busy

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        end = time.thread_time() + SAMPLE_S
        while self.is_busy and time.thread_time() < end:
            pass
        time.sleep(0 if self.is_busy else SAMPLE_S)
        return {"x": torch.rand(3, 32, 32) * 2 - 1}


class Generator(nn.Module):
    """Noise to images."""

    latent = 32

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(32, width * 64)
        self.last = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()
        )

    def forward(self, z: Tensor) -> Tensor:
        """Return images (B, 3, 32, 32)."""
        return self.last(self.first(z).unflatten(1, (-1, 8, 8)))  # type: ignore[no-any-return]


def critic(width: int) -> nn.Module:
    """Return a discriminator."""
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(width * 64, 1),
    )  # fmt: skip


def wait(folder: Path, steps: int, batch: int, width: int, is_busy: bool, **settings: Any) -> dict[str, float]:
    """Train, and return the share of time that waits for data, and the seconds of a step."""
    words = {"train.batch": batch, "train.kimg": (steps + 10) * batch / 1000, "every.log_steps": 1}
    quiet = {"every.sample_kimg": 0, "every.score_kimg": 0, "evaluation.features": None}
    named = {name.replace("__", "."): value for name, value in settings.items()}
    trainer = pg.Trainer(
        Generator(width), critic(width), Slow(is_busy), settings={**words, **quiet, **named}, out=folder
    )
    rows = [row for row in trainer.run().history if row.get("data_wait") is not None]
    return {"data_wait": rows[-1]["data_wait"]}


def main() -> None:
    """Measure both ways, one after the other."""
    parser = argparse.ArgumentParser()
    for name, default in {"steps": 150, "batch": 8, "width": 128, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {**vars(options)}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for name, settings in {"training process": {"loading__prefetch": 0}, "processes": {}}.items():
                out = Path(folder) / f"{name}-{repeat}"
                measured = wait(out, options.steps, options.batch, options.width, options.busy, **settings)
                found.setdefault(name, []).append(measured["data_wait"])
                print(name, measured, flush=True)
    write("dataset-wait", found)


if __name__ == "__main__":
    main()
