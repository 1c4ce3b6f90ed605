"""Cost of a run over any tensors.

Steps of `paragan.Trainer` on the vocoder example, with its log points, against HiFi-GAN's loop in plain torch on equal
tensors. Aim: <= 1.05 x CPU time.

python -m benchmarks.adversarial_overhead [pairs]
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch
from torch.nn.functional import l1_loss, mse_loss

from benchmarks.paired_timing import compare, keep
from examples import vocoder
from paragan import build
from paragan.api.trainer import Trainer
from paragan.core.dist import ALONE

STEPS = 10  # per timed call
LONG = 10_000_000  # images; the run never ends
SETTINGS = {
    "g.precision": "fp32", "d.precision": "fp32", "g.channels_last": False, "d.channels_last": False,
    "train.kimg": LONG / 1000, "every.save_kimg": 0,
}  # fmt: skip


def library(made: Trainer, folder: Path) -> Callable[[], object]:
    """A call that makes STEPS steps of the run."""
    loop = build.trainer(made.config, folder, print, lambda: False, model=made._game(ALONE))
    return lambda: list(loop.run(STEPS))


def plain(made: Trainer) -> Callable[[], object]:
    """A call that makes STEPS steps of HiFi-GAN's loop."""
    g, ears = copy.deepcopy((made.generator, list(made.discriminator.children())))
    adam = {"lr": 3e-3, "betas": (0.5, 0.99)}
    of_g = torch.optim.Adam(g.parameters(), **adam)
    of_d = torch.optim.Adam([weight for ear in ears for weight in ear.parameters()], **adam)
    data = vocoder.chirps(4000, seed=0)
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(0)).split(vocoder.BATCH)
    steps = count()

    def step() -> None:
        rows = order[next(steps) % len(order)]
        train_step(g, ears, of_g, of_d, *(tensor[rows] for tensor in data.values()))

    return lambda: [step() for _ in range(STEPS)]


def train_step(g, ears, of_g, of_d, audio, frames) -> None:
    fake = g(frames)
    loss = sum(mean_square(ear(audio)[0], 1) + mean_square(ear(fake.detach())[0], 0) for ear in ears)
    of_d.zero_grad()
    loss.backward()
    of_d.step()
    loss = 5 * l1_loss(vocoder.spectrogram(fake), frames[:, : vocoder.BANDS])
    for ear in ears:
        (logits, features), (_, wanted) = ear(fake), ear(audio)
        loss = loss + mean_square(logits, 1)
        loss = loss + 2 * sum(l1_loss(a, b.detach()) for a, b in zip(features, wanted, strict=True))
    of_g.zero_grad()
    loss.backward()
    of_g.step()


def mean_square(logits: torch.Tensor, target: float) -> torch.Tensor:
    return mse_loss(logits, torch.full_like(logits, target)) / 2


def main(pairs: int = 15) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = vocoder.trainer(out=folder, settings=SETTINGS)
        ratio = compare(library(made, Path(folder)), plain(made), pairs)
    keep("adversarial_overhead", {"vocoder": ratio}, f"{STEPS} steps of batch {vocoder.BATCH} per call")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
