"""fd[cifar10] of `sngan-cifar10`, as a user starts it, against a naive torch loop, at equal numbers of images.

    python -m benchmarks.sngan_cifar10 DATA_FOLDER RUNS_FOLDER [share of the recipe's length for the naive loop] [seeds]

DATA_FOLDER holds the lossless CIFAR-10 images. Runs stay in RUNS_FOLDER. The naive loop is written in torch.nn alone,
with torch's spectral norm, batch norm and embedding, its resampling written out; only data, initial weights, order and
latents are the library's, so that the comparison sees the step and not the luck of the draw. It differs where torch
does: one power iteration in every forward pass of D instead of one per update, and running statistics of batch norm
that follow every forward pass of G.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from benchmarks.record import write
from paragan import build
from paragan.config import RunConfig, read_recipe
from paragan.core.types import Rows, Side
from paragan.evaluation.evaluator import Evaluator
from paragan.features import cifar10
from paragan.features.base.extractor import ExtractorContext
from paragan.game.prior import Prior
from paragan.loading.order import Order

FD, LATENT, CLASSES, UPDATES_OF_D = "fd[cifar10]", 128, 10, 5
Curve = list[tuple[int, float]]


class Norm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gain, self.bias = nn.Embedding(CLASSES, channels), nn.Embedding(CLASSES, channels)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return self.norm(h) * self.gain(y)[:, :, None, None] + self.bias(y)[:, :, None, None]


class Up(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = Norm(width), nn.Conv2d(width, width, 3, padding=1)
        self.norm2, self.conv2 = Norm(width), nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.conv1(F.interpolate(self.norm1(x, y).relu(), scale_factor=2))
        h = self.conv2(self.norm2(h, y).relu())
        return h + self.shortcut(F.interpolate(x, scale_factor=2))


class Generator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(LATENT, width * 16)
        self.ups = nn.ModuleList([Up(width) for _ in range(3)])
        self.conv, self.norm = nn.Conv2d(width, 3, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        h = self.linear(z).view(len(z), -1, 4, 4)
        for up in self.ups:
            h = up(h, y)
        return self.conv(self.norm(h).relu()).tanh()


class Down(nn.Module):
    def __init__(self, inputs: int, outputs: int, down: bool, first: bool) -> None:
        super().__init__()
        self.down, self.first = down, first
        self.conv1 = spectral_norm(nn.Conv2d(inputs, outputs, 3, padding=1))
        self.conv2 = spectral_norm(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = spectral_norm(nn.Conv2d(inputs, outputs, 1)) if down else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv2(self.conv1(x if self.first else x.relu()).relu())
        short = self.shortcut(x)
        return F.avg_pool2d(h, 2) + F.avg_pool2d(short, 2) if self.down else h + short


class Discriminator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.downs = nn.ModuleList([Down(3 if n == 0 else width, width, n < 2, n == 0) for n in range(4)])
        self.linear = spectral_norm(nn.Linear(width, 1))
        self.embed = spectral_norm(nn.Embedding(CLASSES, width))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for down in self.downs:
            x = down(x)
        features = x.relu().sum((2, 3))
        return self.linear(features).squeeze(1) + (self.embed(y) * features).sum(1)


def library(data: str, folder: Path, seed: int) -> Curve:
    """(images, fd) at every score of the command, from its record; a run that was stopped goes on."""
    settings = ["data.variant=lossless", "evaluation.features=cifar10", f"seed={seed}"]
    words = ["train", "sngan-cifar10", f"data.path={data}", *settings, "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "paragan", *words], check=True, timeout=7200)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return sorted({round(line["kimg"] * 1000): line[FD] for line in lines if line["kind"] == "score"}.items())


def with_weights_of(net: nn.Module, config: RunConfig, side: Side, found: build.Data) -> nn.Module:
    """The library's initial weights, which stand in the same order."""
    theirs = build.network_factory(config, side, found.train, torch.device("cpu"))()
    for mine, value in zip(net.parameters(), theirs.parameters(), strict=True):
        assert mine.shape == value.shape
        mine.data.copy_(value.data)
    return net


def naive(data: str, seed: int, share: float) -> Curve:
    """The same pair and settings in a plain loop, for a share of the length."""
    config = read_recipe("sngan-cifar10", [f"data.path={data}", "data.variant=lossless", f"seed={seed}"])
    found = build.open_data(config)
    x_BCHW, y_B = found.train.fetch(np.arange(len(found.train))).values()
    x_BCHW = x_BCHW.float() / 127.5 - 1
    torch.manual_seed(config.seed)
    width, batch = config.model.options.width, config.train.batch
    g = with_weights_of(Generator(2 * width), config, Side.G, found)
    d = with_weights_of(Discriminator(width), config, Side.D, found)
    with torch.no_grad():
        for _ in range(15):  # torch's power iteration has started on other weights than these
            d(x_BCHW[:2], y_B[:2])
    average = copy.deepcopy(g).eval()
    adam = {"lr": config.g.optimizer.lr, "betas": (0.0, 0.9), "fused": True}
    opt_g, opt_d = (torch.optim.Adam(net.parameters(), **adam) for net in (g, d))
    prior, order = Prior(seed=config.seed, latent=LATENT, num_classes=CLASSES), Order(len(x_BCHW), config.seed)
    evaluator = Evaluator(
        extractor=cifar10.prepare(
            cifar10.Options(), ExtractorContext(name="cifar10", train=found.train, held_out=found.held_out)
        ),
        train=found.train,
        held_out=found.held_out,
        num_images=config.evaluation.num_images,
    )
    z_score, y_score = prior.draw(
        "score", Rows(step=0, first=0, count=config.evaluation.num_images, total=config.evaluation.num_images)
    )

    @torch.no_grad()
    def generate(first: int, count: int) -> tuple[Tensor, Tensor]:
        y = y_score[first : first + count]
        return average(z_score[first : first + count], y), y

    curve = [(0, evaluator.score(generate).metrics[FD])]
    half_life, every = config.g.ema.half_life_kimg * 1000, config.every.score_kimg * 1000
    number = images = 0
    while images < config.train.kimg * 1000 * share:
        before = images
        for _ in range(UPDATES_OF_D):
            rows = torch.from_numpy(order.at(np.arange(number * batch, (number + 1) * batch)))
            z, y = prior.draw("d", Rows(step=number, first=0, count=batch, total=batch))
            with torch.no_grad():
                fake = g(z, y)
            real_logits, fake_logits = d(torch.cat([x_BCHW[rows], fake]), torch.cat([y_B[rows], y])).split(batch)
            loss = (1 - real_logits).relu().mean() + (1 + fake_logits).relu().mean()
            opt_d.zero_grad()
            loss.backward()
            opt_d.step()
            number += 1
        z, y = prior.draw("g", Rows(step=number - 1, first=0, count=batch, total=batch))
        d.requires_grad_(False)
        loss = -d(g(z, y), y).mean()
        opt_g.zero_grad()
        loss.backward()
        opt_g.step()
        d.requires_grad_(True)
        images = number * batch
        with torch.no_grad():
            beta = 0.5 ** (batch / half_life)
            for mine, theirs in zip(average.parameters(), g.parameters(), strict=True):
                mine.lerp_(theirs, 1 - beta)
            for mine, theirs in zip(average.buffers(), g.buffers(), strict=True):
                mine.copy_(theirs)
        if images // every > before // every:
            curve.append((images, evaluator.score(generate).metrics[FD]))
            print("naive:", curve[-1], flush=True)
    return curve


def main(data: str, folder: str, share: float = 1.0, seeds: int = 1) -> None:
    runs: dict[str, list[Curve]] = {"library": [], "naive": []}
    ratios = []
    for seed in range(seeds):
        runs["library"].append(library(data, Path(folder) / f"sngan-cifar10-{seed}", seed))
        runs["naive"].append(naive(data, seed, share))
        pairs = zip(runs["library"][-1], runs["naive"][-1], strict=False)
        ratios.append([(images, mine / theirs) for (images, mine), (_, theirs) in pairs])
        for name, curves in runs.items():
            print(f"{name}, seed {seed}:", [(images, round(fd, 2)) for images, fd in curves[-1]], flush=True)
        print("library / naive:", [(images, round(ratio, 3)) for images, ratio in ratios[-1]], flush=True)
    write("sngan-cifar10", {f"{FD} by images": runs, "library / naive by images": ratios})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], *(kind(word) for kind, word in zip((float, int), sys.argv[3:], strict=False)))
