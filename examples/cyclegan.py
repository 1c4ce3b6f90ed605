"""Two generators and two discriminators in one game: unpaired translation in the manner of CycleGAN (Zhu et al. 2017).

Domain A shows red discs, domain B blue squares; no disc has a partner among the squares. A player is a side of the
game, not a network: both translators are one module, both discriminators another, and one step trains all four. The
cycle loss is a `pg.Term` on the reconstructions that the generator returns next to its images.

    python examples/cyclegan.py

Trains about 20 s on one CPU core and writes cyclegan.png: discs, their translations to squares, and the
reconstructed discs. Colour and shape change, the position does not.
"""

import torch
from PIL import Image
from torch import nn

import paragan as pg
from paragan.schemes import synchronous

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

    def forward(self, z, y, pair):
        translated = torch.stack([self.to_a(pair[:, 1]), self.to_b(pair[:, 0])], 1)
        back = torch.stack([self.to_a(translated[:, 1]), self.to_b(translated[:, 0])], 1)
        return pg.GeneratorOutput(translated, {"back": back})


class Discriminators(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_a, self.of_b = judge(), judge()

    def forward(self, pair, y, condition):
        return torch.stack([self.of_a(pair[:, 0]), self.of_b(pair[:, 1])], 1)  # patch logits: the game averages them


def cycle(outputs, inputs):
    return (outputs.extra["back"] - inputs.condition).abs()


def main(steps=200, seed=0):
    """Train; returns new discs, their translations and their reconstructions."""
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(seed)
    policy = pg.Policy(lr=1e-3, arguments={"betas": (0.5, 0.99)})
    gan = pg.GAN(
        pg.Player(pg.Side.G, Translators(), policy=policy),
        pg.Player(pg.Side.D, Discriminators(), policy=policy),
        pg.least_squares_loss,
        pg.Prior(seed, latent=0),  # no noise
        g_penalties=(pg.Term("cycle", cycle, weight=10.0),),
    )
    for step in range(steps):
        pair = torch.stack([shapes(BATCH, "disc", draws), shapes(BATCH, "square", draws)], 1)
        batch = pg.Batch(pg.Rows(step, 0, BATCH, BATCH), {"image": pair, "condition": pair})
        report = synchronous.step(gan, iter([batch]))
        if step % 50 == 0:
            print(step, report.read())
    discs = shapes(64, "disc", draws)
    with torch.no_grad():
        squares = gan.g.net.to_b(discs)
        return discs, squares, gan.g.net.to_a(squares)


if __name__ == "__main__":
    columns = torch.stack(main())[:, :8].permute(0, 3, 1, 4, 2).reshape(3 * SIZE, 8 * SIZE, 3)
    Image.fromarray(((columns + 1) * 127.5).byte().numpy()).resize((8 * SIZE * 8, 3 * SIZE * 8), 0).save("cyclegan.png")
