"""An autoencoder with a codebook against a discriminator, in the manner of VQGAN (Esser et al. 2021), on digits.

The "generator" makes its image from another one: its input is the condition of the game, not noise. Each of the
4 x 4 vectors between its halves is replaced by the nearest of 64 codes, so a digit becomes sixteen small whole numbers.
The generator returns tensors for the losses next to the image; three `pg.Term` read them.

    python examples/vqgan.py

Trains about 20 s on one CPU core and writes vqgan.png: held-out digits above, their reconstructions below.
"""

import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import paragan as pg
from paragan.datasets import digits
from paragan.schemes import synchronous

BATCH, CODES, DEPTH = 32, 64, 8


def conv(inputs, outputs, stride=1):
    return [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.LeakyReLU(0.2)]


class Autoencoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(CODES, DEPTH))
        self.encoder = nn.Sequential(*conv(1, width, 2), *conv(width, 2 * width, 2), nn.Conv2d(2 * width, DEPTH, 1))
        up = (
            *conv(DEPTH, 2 * width),
            nn.Upsample(scale_factor=2),
            *conv(2 * width, width),
            nn.Upsample(scale_factor=2),
        )
        self.decoder = nn.Sequential(*up, *conv(width, width), nn.Conv2d(width, 1, 1), nn.Tanh())

    def tokens(self, x):
        """Features of the encoder (B, 4, 4, DEPTH) and the number of the nearest code to each (B, 4, 4)."""
        h = F.layer_norm(self.encoder(x).permute(0, 2, 3, 1), (DEPTH,))
        return h, torch.cdist(h.flatten(0, 2), self.codes).argmin(1).view(h.shape[:3])

    def decode(self, h):
        return self.decoder(h.permute(0, 3, 1, 2))

    def forward(self, z, y, x):
        h, tokens = self.tokens(x)
        chosen = self.codes[tokens]
        through = h + (chosen - h).detach()  # the code's value, the encoder's gradient
        away = {"codebook": (chosen - h.detach()).square(), "commitment": (h - chosen.detach()).square()}
        return pg.GeneratorOutput(self.decode(through), away)


class Judge(nn.Module):
    """Patch logits; it ignores the condition."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(*conv(1, width, 2), *conv(width, 2 * width, 2), nn.Conv2d(2 * width, 1, 3))

    def forward(self, x, y, condition):
        return self.layers(x)


def main(steps=300, seed=0):
    """Train; returns held-out digits, their reconstructions, and the tokens (N, 4, 4) between them."""
    torch.manual_seed(seed)
    train, held_out = (digits.source(digits.Options(size=16), split) for split in ("train", "held_out"))
    train, held_out = (s.fetch(torch.arange(len(s)).numpy())["image"] for s in (train, held_out))
    train, held_out = train / 127.5 - 1, held_out / 127.5 - 1
    policy = pg.Policy(lr=2e-3, arguments={"betas": (0.5, 0.99)})
    reconstruction = pg.Term("reconstruction", lambda outputs, inputs: (outputs.images - inputs.condition).abs(), 4.0)
    codebook = pg.Term("codebook", lambda outputs, inputs: outputs.extra["codebook"])
    commitment = pg.Term("commitment", lambda outputs, inputs: outputs.extra["commitment"], 0.25)
    gan = pg.GAN(
        pg.Player(pg.Side.G, Autoencoder(), policy=policy),
        pg.Player(pg.Side.D, Judge(), policy=policy),
        pg.hinge_loss,
        pg.Prior(seed, latent=0),  # no noise
        g_penalties=(reconstruction, codebook, commitment),
    )
    for step in range(steps):
        x = train[torch.randint(len(train), (BATCH,))]
        report = synchronous.step(gan, iter([pg.Batch(pg.Rows(step, 0, BATCH, BATCH), {"image": x, "condition": x})]))
        if step % 50 == 0:
            print(step, report.read())
    net = gan.g.net.eval()
    with torch.no_grad():
        tokens = net.tokens(held_out)[1]
        return held_out, net.decode(net.codes[tokens]), tokens


if __name__ == "__main__":
    rows = torch.stack(main()[:2])[:, :16, 0].permute(0, 2, 1, 3).reshape(32, 16 * 16)
    Image.fromarray(((rows + 1) * 127.5).byte().numpy()).resize((16 * 64, 32 * 4), 0).save("vqgan.png")
