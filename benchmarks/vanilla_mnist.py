"""fd[mnist] of `vanilla-mnist` over 5 epochs against a naive torch loop of the same pair.

Aim: within 5 % over 3 seeds.

    python -m benchmarks.vanilla_mnist DATA_FOLDER [seeds]

DATA_FOLDER holds the MNIST idx files. The naive loop runs twice per seed: on the library's own initial weights, order
and latents (so that the comparison sees the step and not the luck of the draw, which moves a single run's distance by
15 %), and as anybody writes it, on torch's global generator.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.record import write
from paragan import build
from paragan.config import read_recipe
from paragan.core.types import Rows, Side
from paragan.evaluation.evaluator import Evaluator
from paragan.features import mnist
from paragan.features.base.extractor import ExtractorContext
from paragan.game.prior import Prior
from paragan.loading.order import Order

EPOCHS, BATCH, LATENT, IMAGES = 5, 64, 100, 10_000
FD, EXTRACTOR = "fd[mnist]", "evaluation.features=mnist"


def library(data: str, seed: int) -> list[float]:
    """The recipe as a user runs it; fd after each epoch."""
    words = [f"data.path={data}", f"seed={seed}", EXTRACTOR, "every.save_kimg=0", "every.sample_kimg=0"]
    config = read_recipe("vanilla-mnist", words)
    with tempfile.TemporaryDirectory() as folder:
        trainer = build.trainer(config, Path(folder), print, lambda: False)
        return [e.values[FD] for e in trainer.run() if e.kind == "score" and e.step]


def naive(data: str, seed: int, paired: bool) -> list[float]:
    """The same pair and settings in a plain loop; fd after each epoch."""
    config = read_recipe("vanilla-mnist", [f"data.path={data}", f"seed={seed}"])
    found = build.open_data(config)
    x_BCHW = found.train.fetch(np.arange(len(found.train)))["image"]
    x = x_BCHW.float().flatten(1) / 127.5 - 1
    torch.manual_seed(seed)
    act = nn.LeakyReLU(0.2)
    wide = (nn.Linear(LATENT, 256), act, nn.Linear(256, 512), act, nn.Linear(512, 1024), act, nn.Linear(1024, 784))
    g = nn.Sequential(*wide, nn.Tanh())
    d = nn.Sequential(nn.Linear(784, 512), act, nn.Linear(512, 256), act, nn.Linear(256, 1))
    if paired:
        for net, side in ((g, Side.G), (d, Side.D)):
            theirs = build.network_factory(config, side, found.train, torch.device("cpu"))()
            for mine, value in zip(net.parameters(), theirs.parameters(), strict=True):
                mine.data.copy_(value.data)
    prior, order = Prior(seed=seed, latent=LATENT), Order(len(x), seed)

    def noise(stream: str, step: int, count: int) -> torch.Tensor:
        if paired:
            return prior.draw(stream, Rows(step=step, first=0, count=count, total=count))[0]
        return torch.randn(count, LATENT)

    opt_g, opt_d = (torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999), fused=True) for net in (g, d))
    evaluator = Evaluator(
        extractor=mnist.prepare(
            mnist.Options(), ExtractorContext(name="mnist", train=found.train, held_out=found.held_out)
        ),
        train=found.train,
        held_out=found.held_out,
        num_images=IMAGES,
    )
    z_score = noise("score", 0, IMAGES)

    @torch.no_grad()
    def generate(first: int, count: int):
        return g(z_score[first : first + count]).view(-1, 1, 28, 28), None

    distances = []
    for step in range(round(EPOCHS * len(x) / BATCH)):
        at = np.arange(step * BATCH, (step + 1) * BATCH)
        rows = torch.from_numpy(order.at(at)) if paired else torch.randint(len(x), (BATCH,))
        with torch.no_grad():
            fake = g(noise("d", step, BATCH))
        real, made = d(torch.cat([x[rows], fake])).squeeze(1).split(BATCH)
        loss = (F.softplus(-real) + F.softplus(made)).sum() / BATCH
        loss.backward()
        opt_d.step()
        opt_d.zero_grad()
        d.requires_grad_(False)
        loss = F.softplus(-d(g(noise("g", step, BATCH))).squeeze(1)).sum() / BATCH
        loss.backward()
        d.requires_grad_(True)
        opt_g.step()
        opt_g.zero_grad()
        if (step + 1) * BATCH // len(x) > step * BATCH // len(x):
            distances.append(evaluator.score(generate).metrics[FD])
    return distances


def main(data: str, seeds: int = 3) -> None:
    kinds = {
        "library": lambda seed: library(data, seed),
        "naive, equal draws": lambda seed: naive(data, seed, paired=True),
        "naive, own draws": lambda seed: naive(data, seed, paired=False),
    }
    runs: dict[str, list[list[float]]] = {name: [] for name in kinds}
    for seed in range(seeds):
        for name, run in kinds.items():
            runs[name].append(run(seed))
            print(f"{name}, seed {seed}:", [round(v, 1) for v in runs[name][-1]], flush=True)
    means = {name: [statistics.mean(epoch) for epoch in zip(*values, strict=True)] for name, values in runs.items()}
    ratios = {name: [a / b for a, b in zip(means["library"], means[name], strict=True)] for name in list(kinds)[1:]}
    for name, ratio in ratios.items():
        print(f"mean fd per epoch, library / {name}:", [round(r, 3) for r in ratio])
    write("vanilla-mnist", {FD: runs, "ratio": ratios})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], *(int(a) for a in sys.argv[2:]))
