"""Two generators and two discriminators in one game: unpaired translation in the manner of CycleGAN (Zhu et al. 2017).

Domain A shows red discs, domain B blue squares; no disc has a partner among the squares. A player is a side of the
game, not a network: both translators are one module, both discriminators another, and one step trains all four. The
cycle loss is a `pg.Term` on the reconstructions that the generator returns next to its images.

    python examples/cyclegan.py

Trains about 15 s on one CPU core, resumes if it was stopped, and writes cyclegan.png: discs, their translations to
squares, and the reconstructed discs. Colour and shape change, the position does not.
"""

import sys

import torch
from PIL import Image
from torch import nn

import paragan as pg

SIZE, BATCH = 16, 16
RED, BLUE = torch.tensor([0.9, -0.8, -0.8]), torch.tensor([-0.8, -0.4, 0.9])


def shapes(num, kind, draws):
    """Images (num, 3, SIZE, SIZE) in [-1, 1]: one disc or square at a random place on grey."""
    x, y = torch.rand(2, num, 1, 1, generator=draws) * (SIZE - 8) + 3.5
    rows, columns = torch.arange(SIZE).view(1, -1, 1), torch.arange(SIZE).view(1, 1, -1)
    dx, dy = (columns - x).abs(), (rows - y).abs()
    distance = (dx**2 + dy**2).sqrt() if kind == "disc" else torch.maximum(dx, dy)
    ink = (3.5 - distance).clamp(0, 1)[:, None]
    return ink * (RED if kind == "disc" else BLUE).view(1, 3, 1, 1)


def translator(width=24):
    return nn.Sequential(
        *(nn.Conv2d(3, width, 5, padding=2), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(width, 3, 3, padding=1), nn.Tanh()),
    )


def judge(width=24):
    first, second = (pg.spectral_norm(nn.Conv2d(a, b, 4, 2, 1)) for a, b in ((3, width), (width, 2 * width)))
    return nn.Sequential(first, nn.LeakyReLU(0.2), second, nn.LeakyReLU(0.2), nn.Conv2d(2 * width, 1, 3))


class Translators(nn.Module):
    """Translates pairs (B, 2, 3, H, W) of an A and a B to pairs of a generated A and a generated B."""

    def __init__(self):
        super().__init__()
        self.to_a, self.to_b = translator(), translator()

    def forward(self, pair):
        translated = torch.stack([self.to_a(pair[:, 1]), self.to_b(pair[:, 0])], 1)
        back = torch.stack([self.to_a(translated[:, 1]), self.to_b(translated[:, 0])], 1)
        return pg.GeneratorOutput(translated, {"back": back})


class Discriminators(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_a, self.of_b = judge(), judge()

    def forward(self, pair):
        return {"a": self.of_a(pair[:, 0]), "b": self.of_b(pair[:, 1])}  # patch logits: the game averages them


def cycle(outputs, inputs):
    return (outputs.extra["back"] - inputs.real_sample).abs()


def pairs(num=2048):
    draws = torch.Generator().manual_seed(0)
    return {"pair": torch.stack([shapes(num, "disc", draws), shapes(num, "square", draws)], 1)}


def trainer(steps=200, seed=0, out="runs/cyclegan", settings=None):
    torch.manual_seed(seed)
    adam = {"lr": 1e-3, "arguments": {"betas": [0.5, 0.99]}}
    chosen = {"train.batch": BATCH, "train.kimg": steps * BATCH / 1000, "g.optimizer": adam, "d.optimizer": adam}
    how = {"loss": "least_squares", "terms": [pg.Term(name="cycle", function=cycle, weight=10.0)]}
    return pg.Trainer(Translators(), Discriminators(), pairs(), out=out, settings={**chosen, **(settings or {})}, **how)


def translated(net):
    """New discs, their translations and their reconstructions."""
    discs = shapes(64, "disc", torch.Generator().manual_seed(1))
    with torch.no_grad():
        squares = net.to_b(discs)
        return discs, squares, net.to_a(squares)


if __name__ == "__main__":
    run = trainer(*map(int, sys.argv[1:])).run()
    columns = torch.stack(translated(run.generator))[:, :8].permute(0, 3, 1, 4, 2).reshape(3 * SIZE, 8 * SIZE, 3)
    Image.fromarray(((columns + 1) * 127.5).byte().numpy()).resize((8 * SIZE * 8, 3 * SIZE * 8), 0).save("cyclegan.png")
