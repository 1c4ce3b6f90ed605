"""A table instead of images: two numeric columns and a category, from a WGAN with gradient penalty.

A row is three numbers of a one-hot category and two standardised measurements, so every network is a plain MLP. The
category is drawn with a straight-through Gumbel softmax (Jang et al. 2017): D gets exact one-hot rows of both kinds.

    python examples/tabular.py

Trains about 20 s on one CPU core, then prints the shares of the categories, the means and the correlation within each
category, of real and generated rows. They differ by a few hundredths.
"""

import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg
from paragan.game.options import EmaOptions
from paragan.penalties import gradient_penalty
from paragan.schemes import synchronous

SHARES = torch.tensor([0.5, 0.3, 0.2])
MEANS = torch.tensor([[-1.0, 0.5], [0.5, -1.0], [1.5, 1.5]])
SPREAD, CORRELATIONS = 0.5, torch.tensor([0.8, 0.0, -0.8])
BATCH, LATENT = 128, 16


def table(num, draws):
    """Rows (num, 5): one-hot category, two numbers whose correlation depends on the category."""
    kind = torch.multinomial(SHARES, num, replacement=True, generator=draws)
    noise, along = torch.randn(num, 2, generator=draws), CORRELATIONS[kind]
    second = along * noise[:, 0] + (1 - along.square()).sqrt() * noise[:, 1]
    numbers = MEANS[kind] + SPREAD * torch.stack([noise[:, 0], second], 1)
    return torch.cat([F.one_hot(kind, 3).float(), numbers], 1)


class Generator(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(LATENT, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.kind, self.numbers = nn.Linear(width, 3), nn.Linear(width + 3, 2)

    def forward(self, z):
        h = self.body(z)
        kind = F.gumbel_softmax(self.kind(h), tau=0.5, hard=True)
        return torch.cat([kind, self.numbers(torch.cat([h, kind], 1))], 1)


def discriminator(width=128):
    return nn.Sequential(
        nn.Linear(5, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
    )


def summary(rows):
    """Share, means and correlation of each category: (3, 4)."""
    found = []
    for kind in range(3):
        numbers = rows[rows[:, kind] == 1, 3:]
        correlation = torch.corrcoef(numbers.T)[0, 1] if len(numbers) > 2 else torch.tensor(0.0)
        found.append(torch.stack([rows[:, kind].mean(), *numbers.mean(0), correlation]))
    return torch.stack(found)


def main(steps=1500, seed=0):
    """Train; returns the summaries of 10,000 real and 10,000 generated rows."""
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(seed)
    g = Generator()
    policy = pg.Policy(lr=1e-3, arguments={"betas": (0.0, 0.9)})
    gan = pg.GAN(
        pg.Player(pg.Side.G, g, policy=policy, ema=pg.Ema(copy.deepcopy(g), EmaOptions(half_life_kimg=10))),
        pg.Player(pg.Side.D, discriminator(), policy=replace(policy, updates_per_step=2)),
        pg.wasserstein_loss,
        pg.Prior(seed, LATENT, arguments=("row",)),
        d_penalties=(gradient_penalty.Penalty(gradient_penalty.Options(weight=1.0)),),
    )
    batches = (pg.Batch(pg.Rows(n, 0, BATCH, BATCH), {"row": table(BATCH, draws)}) for n in range(2 * steps))
    for step in range(steps):
        report = synchronous.step(gan, batches)
        if step % 500 == 0:
            print(step, report.read())
    with torch.no_grad():
        made = gan.g.ema.net(torch.randn(10_000, LATENT))
    return summary(table(10_000, draws)), summary(made)


if __name__ == "__main__":
    real, made = main()
    for kind in range(3):
        print(
            f"category {kind} (share, mean, mean, correlation)  real {real[kind].tolist()}  made {made[kind].tolist()}"
        )
