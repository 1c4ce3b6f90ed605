"""fd[mnist-cnn] of `vanilla-mnist` over 5 epochs against a naive torch loop of the same pair, 3 seeds. Aim: within 5 %.

    python -m benchmarks.vanilla_mnist DATA_FOLDER [seeds]

DATA_FOLDER holds the MNIST idx files; the classifier lies beside it (classifiers/mnist_cnn.npz).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.pairs import RESULTS, machine
from paragan import build
from paragan.config import load
from paragan.engine.evaluate import Evaluator
from paragan.engine.judge import mnist_cnn
from paragan.engine.trainer import Scored

EPOCHS, BATCH, LATENT, IMAGES = 5, 64, 100, 10_000
FD = "fd[mnist-cnn]"


def library(data: str, seed: int) -> list[float]:
    """The recipe as a user runs it; fd after each epoch."""
    config = load("vanilla-mnist", [f"data.path={data}", f"seed={seed}", "every.save_kimg=0", "every.sample_kimg=0"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = build.trainer(config, Path(folder), print, lambda: False)
        return [e.score.metrics[FD] for e in trainer.run() if isinstance(e, Scored) and e.step]


def naive(data: str, seed: int) -> list[float]:
    """The same pair and settings as anybody writes them down: torch's own init, shuffling and noise."""
    config = load("vanilla-mnist", [f"data.path={data}"])
    found = build.data(config)
    x_BCHW, _ = found.train.fetch(np.arange(len(found.train)))
    x = x_BCHW.float().flatten(1) / 127.5 - 1
    torch.manual_seed(seed)
    act = nn.LeakyReLU(0.2)
    g = nn.Sequential(
        *(
            nn.Linear(LATENT, 256),
            act,
            nn.Linear(256, 512),
            act,
            nn.Linear(512, 1024),
            act,
            nn.Linear(1024, 784),
            nn.Tanh(),
        )
    )
    d = nn.Sequential(nn.Linear(784, 512), act, nn.Linear(512, 256), act, nn.Linear(256, 1))
    opt_g, opt_d = (torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999)) for net in (g, d))
    evaluator = Evaluator(
        mnist_cnn(Path(data).parent / "classifiers/mnist_cnn.npz"), found.train, found.held_out, IMAGES
    )

    @torch.no_grad()
    def generate(first: int, count: int):
        return g(torch.randn(count, LATENT)).view(-1, 1, 28, 28), None

    told = []
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            fake = g(torch.randn(len(rows), LATENT)).detach()
            loss = F.softplus(-d(x[rows])).mean() + F.softplus(d(fake)).mean()
            opt_d.zero_grad()
            loss.backward()
            opt_d.step()
            loss = F.softplus(-d(g(torch.randn(len(rows), LATENT)))).mean()
            opt_g.zero_grad()
            loss.backward()
            opt_g.step()
        told.append(evaluator.score(generate).metrics[FD])
    return told


def main(data: str, seeds: int = 3) -> None:
    runs = {"library": [], "naive": []}
    for seed in range(seeds):
        for name, run in (("library", library), ("naive", naive)):
            runs[name].append(run(data, seed))
            print(name, seed, [round(v, 1) for v in runs[name][-1]], flush=True)
    means = {name: [statistics.mean(epoch) for epoch in zip(*values, strict=True)] for name, values in runs.items()}
    ratios = [a / b for a, b in zip(means["library"], means["naive"], strict=True)]
    print("mean fd per epoch, library / naive:", [round(r, 3) for r in ratios])
    record = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "torch": torch.__version__,
        FD: runs,
        "ratio": ratios,
    }
    path = RESULTS / f"{record['date']}-vanilla-mnist.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1], *(int(a) for a in sys.argv[2:]))
