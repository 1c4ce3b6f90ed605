"""One step from noise to samples by distribution matching (DMD2, Yin et al. 2024), with three networks that train.

A real diffusion model is replaced by the exact denoiser of a mixture of eight Gaussians, so that every number can be
checked. The fake score, a denoiser of G's samples, learns next to D; G follows the difference of both denoisers, and D.

    python examples/dmd2.py

Trains about 40 s on one CPU core, in runs/dmd2, then prints how many of the eight modes the samples cover, and their
distance from the nearest mean (the mixture's: 0.19).
"""

import math
import sys

import torch
from torch import nn

import paragan as pg

ANGLES = torch.arange(8) * math.pi / 4
MEANS = 2 * torch.stack([ANGLES.cos(), ANGLES.sin()], 1)
SPREAD, LATENT, BATCH = 0.15, 4, 256
LEAST, MOST = 0.1, 2.0  # standard deviation of the noise


def mixture(num, draws):
    kind = torch.randint(8, (num,), generator=draws)
    return MEANS[kind] + SPREAD * torch.randn(num, 2, generator=draws)


def exact_denoiser(noisy_B2, sigma_B1):
    """The mean of clean samples of the mixture, given noisy ones."""
    means = MEANS.to(noisy_B2)
    variance_B1 = SPREAD**2 + sigma_B1.square()
    weights_BK = (-torch.cdist(noisy_B2, means).square() / (2 * variance_B1)).softmax(1)
    centre_B2 = weights_BK @ means
    return centre_B2 + SPREAD**2 / variance_B1 * (noisy_B2 - centre_B2)


def mlp(inputs, outputs, width=128):
    layers = (nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, outputs))
    return nn.Sequential(*layers)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.latent = LATENT
        self.body = mlp(LATENT, 2)

    def forward(self, z):
        return self.body(z)


class FakeScore(nn.Module):
    """A denoiser, scaled for data of variance 2 (Karras et al. 2022, table 1)."""

    def __init__(self):
        super().__init__()
        self.body = mlp(3, 2)

    def forward(self, noisy_B2, sigma_B1):
        total = sigma_B1.square() + 2
        inputs = torch.cat([noisy_B2 / total.sqrt(), sigma_B1.log() / 2], 1)
        return 2 / total * noisy_B2 + sigma_B1 * (2 / total).sqrt() * self.body(inputs)


def noised(context, name, x_B2):
    """Samples with noise, and its standard deviation; every number of ranks draws the same."""
    share_B1 = context.uniform(f"{name}/sigma", x_B2[:, :1])
    sigma_B1 = LEAST * (MOST / LEAST) ** share_B1
    return x_B2 + sigma_B1 * context.normal(f"{name}/noise", x_B2), sigma_B1


class Denoising(pg.Penalty):
    """The loss of the fake score: it learns to denoise what G makes."""

    name, side = "denoising", pg.Side("fake_score")

    def __call__(self, context):
        x_B2 = context.outputs.images
        noisy_B2, sigma_B1 = noised(context, self.name, x_B2)
        error_B2 = context.network(noisy_B2, sigma_B1) - x_B2
        return (error_B2.square() * (sigma_B1.square() + 2) / (2 * sigma_B1.square())).mean(1)


class DistributionMatching(pg.Penalty):
    """A loss of G whose gradient at its samples is the difference of both denoisers (Yin et al. 2024, equation 7)."""

    name, side, players = "distribution_matching", pg.Side.G, ("fake_score",)

    def __call__(self, context):
        x_B2 = context.outputs.images
        with torch.no_grad():
            noisy_B2, sigma_B1 = noised(context, self.name, x_B2)
            real_B2 = exact_denoiser(noisy_B2, sigma_B1)
            towards_fakes_B2 = context.players["fake_score"](noisy_B2, sigma_B1) - real_B2
            target_B2 = x_B2 - towards_fakes_B2 / (x_B2 - real_B2).abs().mean(1, keepdim=True)
        return (x_B2 - target_B2).square().mean(1) / 2


def trainer(steps=800, updates=5, seed=0, out="runs/dmd2", settings=None):
    """updates: of the fake score and D for each update of G."""
    torch.manual_seed(seed)
    adam = {"lr": 1e-3, "arguments": {"betas": [0.0, 0.99]}}
    chosen = {
        "scheme": "dmd2", "train.batch": BATCH, "train.kimg": steps * updates * BATCH / 1000,
        "g.optimizer": {**adam, "lr": 3e-4}, "g.ema.half_life_kimg": 5, "adversarial.weight": 0.01,
        "d.optimizer": adam, "d.updates_per_step": updates,
        "players.fake_score": {"optimizer": adam, "updates_per_step": updates}, **(settings or {}),
    }  # fmt: skip
    data = {"x": mixture(20_000, torch.Generator().manual_seed(seed))}
    terms = (Denoising(), DistributionMatching())
    return pg.Trainer(
        Generator(), mlp(2, 1), data, players={"fake_score": FakeScore()}, terms=terms, loss="hinge",
        settings=chosen, out=out,
    )  # fmt: skip


if __name__ == "__main__":
    run = trainer(*map(int, sys.argv[1:])).run()
    distance, nearest = torch.cdist(run.generator(torch.randn(2000, LATENT)), MEANS).min(1)
    print(f"{len(nearest.unique())} of 8 modes, {distance.mean():.3f} from their means")
