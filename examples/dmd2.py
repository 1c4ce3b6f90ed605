"""One step from noise to samples by distribution matching (DMD2, Yin et al. 2024): three networks train.

The diffusion model is the exact denoiser of eight Gaussians. The fake score, a denoiser of G's samples, learns next to
D; G follows the difference of both denoisers, and D.

    python examples/dmd2.py

Trains about 45 s on one CPU core, in runs/dmd2, then prints how many modes the samples cover, and how close they are.
"""

import math

import torch
from torch import nn

import paragan as pg

CENTRES = 2 * torch.tensor([[math.cos(n * math.pi / 4), math.sin(n * math.pi / 4)] for n in range(8)])
SPREAD, LATENT, BATCH, LEAST, MOST = 0.15, 4, 256, 0.1, 2.0  # standard deviations of the noise: 0.1 to 2


def exact_denoiser(noisy_B2, sigma_B1):
    """The mean of clean samples of the mixture, given noisy ones."""
    centres, variance_B1 = CENTRES.to(noisy_B2), SPREAD**2 + sigma_B1.square()
    near_B2 = (-torch.cdist(noisy_B2, centres).square() / (2 * variance_B1)).softmax(1) @ centres
    return near_B2 + SPREAD**2 / variance_B1 * (noisy_B2 - near_B2)


class Net(nn.Sequential):
    latent = LATENT

    def __init__(self, inputs, outputs, width=128):
        layers = (nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, outputs))
        super().__init__(*layers)

    def forward(self, z):
        return super().forward(z)


class FakeScore(Net):
    """A denoiser, scaled for data of variance 2 (Karras et al. 2022, table 1)."""

    def forward(self, noisy_B2, sigma_B1):
        total_B1 = sigma_B1.square() + 2
        found_B2 = super().forward(torch.cat([noisy_B2 / total_B1.sqrt(), sigma_B1.log() / 2], 1))
        return 2 / total_B1 * noisy_B2 + sigma_B1 * (2 / total_B1).sqrt() * found_B2


def noised(context, name, x_B2):
    """Samples with noise, and its standard deviation; any number of ranks draws the same."""
    sigma_B1 = LEAST * (MOST / LEAST) ** context.uniform(f"{name}/sigma", x_B2[:, :1])
    return x_B2 + sigma_B1 * context.normal(f"{name}/noise", x_B2), sigma_B1


class Denoising(pg.Penalty):
    """The loss of the fake score: it learns to denoise what G makes."""

    name, side = "denoising", pg.Side("fake_score")

    def __call__(self, context):
        x_B2 = context.outputs.images
        noisy_B2, sigma_B1 = noised(context, self.name, x_B2)
        error_B2 = (context.network(noisy_B2, sigma_B1) - x_B2).square()
        return (error_B2 * (1 / 2 + 1 / sigma_B1.square())).mean(1)


class DistributionMatching(pg.Penalty):
    """A loss of G whose gradient at its samples is the difference of both denoisers (Yin et al. 2024, equation 7)."""

    name, side, players = "distribution_matching", pg.Side.G, ("fake_score",)

    def __call__(self, context):
        x_B2 = context.outputs.images
        with torch.no_grad():
            noisy_B2, sigma_B1 = noised(context, self.name, x_B2)
            real_B2 = exact_denoiser(noisy_B2, sigma_B1)
            away_B2 = context.players["fake_score"](noisy_B2, sigma_B1) - real_B2
            target_B2 = x_B2 - away_B2 / (x_B2 - real_B2).abs().mean(1, keepdim=True)
        return (x_B2 - target_B2).square().mean(1) / 2


def trainer(steps=800, updates=5, seed=0, out="runs/dmd2", settings=None):
    """updates: of the fake score and D for each update of G."""
    torch.manual_seed(seed)
    data = {"x": CENTRES[torch.randint(8, (20_000,))] + SPREAD * torch.randn(20_000, 2)}
    adam = {"lr": 1e-3, "arguments": {"betas": [0.0, 0.99]}}
    fake_score = {"optimizer": {**adam, "lr": 2e-3}, "updates_per_step": updates}
    chosen = {
        "scheme": "dmd2", "train.batch": BATCH, "train.kimg": steps * updates * BATCH / 1000,
        "g.optimizer": {**adam, "lr": 1e-4}, "g.ema.half_life_kimg": 5, "adversarial.weight": 0.01,
        "d": {"optimizer": adam, "updates_per_step": updates}, "players.fake_score": fake_score, **(settings or {}),
    }  # fmt: skip
    more = {"terms": [Denoising(), DistributionMatching()], "players": {"fake_score": FakeScore(3, 2)}}
    return pg.Trainer(Net(LATENT, 2), Net(2, 1), data, sample="x", settings=chosen, out=out, **more)


if __name__ == "__main__":
    run = trainer().run()
    distance, nearest = torch.cdist(run.generator(torch.randn(2000, LATENT)), CENTRES).min(1)
    print(f"{len(nearest.unique())} of 8 modes, {distance.mean():.3f} from their centres")
