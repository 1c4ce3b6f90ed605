"""A run over a `Dataset` that draws, read by processes or by the training process, on ranks."""

import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

import paragan as pg
from paragan import build
from paragan.core.dist import World

BATCH, STEPS, ROWS = 8, 20, 37


class Draws(Dataset):
    """Points, moved by noise of the global generators."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        noise = torch.rand(2, dtype=torch.float64) + np.random.rand() + random.random()
        return {"point": noise + row / ROWS, "frames": np.array([row / ROWS, random.random()])}


class Maker(nn.Module):
    latent = 3

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 + 2, 2)

    def forward(self, z, frames):
        return self.layer(torch.cat([z, frames], 1))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, point, frames):
        return self.layer(torch.cat([point, frames], 1))


def trainer(folder, steps=STEPS, **settings):
    torch.manual_seed(0)
    chosen = {"train.batch": BATCH, "train.kimg": steps * BATCH / 1000, "every.save_kimg": 0, **settings}
    return pg.Trainer(Maker().double(), Critic().double(), Draws(), settings=chosen, out=folder)


def train(world: World, folder: str, steps: int, **settings) -> str:
    """Train to `steps` on these ranks, and save; return the class of the batches."""
    made = trainer(folder, steps, **{"g.strategy": "ddp", "d.strategy": "ddp"}, **settings)
    loop = build.trainer(made.config, Path(folder), print, lambda: False, world=world, model=made._game(world))
    world.barrier()
    loop.resume()
    for _ in loop.run():
        pass
    return type(loop.batches).__name__
