"""A table instead of images: two numeric columns and a category, from a WGAN with gradient penalty.

A row is three numbers of a one-hot category and two standardised measurements, so every network is a plain MLP. The
category is drawn with a straight-through Gumbel softmax (Jang et al. 2017): D gets exact one-hot rows of both kinds.
Its noise is a part of z, so that a resumed run draws the same.

    python examples/tabular.py

Trains about 20 s on one CPU core, in runs/tabular, then prints the shares of the categories, the means and
the correlation within each category, of real and generated rows. They differ by a few hundredths.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg

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
    latent = LATENT + 3  # the last three are the noise of the category

    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(LATENT, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.kind, self.numbers = nn.Linear(width, 3), nn.Linear(width + 3, 2)

    def forward(self, z):
        h = self.body(z[:, :LATENT])
        gumbel = -(-torch.special.log_ndtr(z[:, LATENT:])).log()
        soft = ((self.kind(h) + gumbel) / 0.5).softmax(1)
        kind = F.one_hot(soft.argmax(1), 3) + soft - soft.detach()
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


def trainer(steps=1500, seed=0, out="runs/tabular", settings=None):
    torch.manual_seed(seed)
    rows = table(20_000, torch.Generator().manual_seed(seed))
    adam = {"lr": 1e-3, "arguments": {"betas": [0.0, 0.9]}}
    chosen = {
        "train.batch": BATCH, "train.kimg": steps * 2 * BATCH / 1000,
        "penalties": [{"name": "gradient_penalty", "weight": 1.0}],
        "g.optimizer": adam, "d.optimizer": adam, "d.updates_per_step": 2, "g.ema.half_life_kimg": 10,
        **(settings or {}),
    }  # fmt: skip
    return pg.Trainer(Generator(), discriminator(), {"row": rows}, loss="wasserstein", settings=chosen, out=out)


if __name__ == "__main__":
    run = trainer(*map(int, sys.argv[1:])).run()
    real = summary(table(10_000, torch.Generator().manual_seed(1)))
    made = summary(run.generator(torch.randn(10_000, Generator.latent)))
    for kind in range(3):
        print(
            f"category {kind} (share, mean, mean, correlation)  real {real[kind].tolist()}  made {made[kind].tolist()}"
        )
