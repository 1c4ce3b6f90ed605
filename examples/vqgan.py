"""An autoencoder with a codebook against a discriminator, in the manner of VQGAN (Esser et al. 2021), on digits.

The "generator" makes its image from another one: it has no noise. Each of the 4 x 4 vectors between its halves is
replaced by the nearest of 64 codes, so a digit becomes sixteen small whole numbers. It returns tensors for the losses
next to the image; two `pg.Term` read them. The discriminator begins after a third of the run, with an adaptive weight.

    python examples/vqgan.py

Trains about 20 s on one CPU core, in runs/vqgan, and writes vqgan.png: held-out digits above, reconstructions below.
"""

import sys

import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import paragan as pg
from paragan.datasets import digits

BATCH, CODES, DEPTH = 32, 64, 8
DIGITS = digits.Options(size=16)


def conv(inputs, outputs, stride=1):
    return [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.LeakyReLU(0.2)]


class Autoencoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(CODES, DEPTH))
        self.encoder = nn.Sequential(*conv(1, width, 2), *conv(width, 2 * width, 2), nn.Conv2d(2 * width, DEPTH, 1))
        up = [
            *conv(DEPTH, 2 * width),
            nn.Upsample(scale_factor=2),
            *conv(2 * width, width),
            nn.Upsample(scale_factor=2),
        ]
        self.decoder = nn.Sequential(*up, *conv(width, width))
        self.last = nn.Conv2d(width, 1, 1)

    def tokens(self, image):
        """Features of the encoder (B, 4, 4, DEPTH) and the number of the nearest code to each (B, 4, 4)."""
        h = F.layer_norm(self.encoder(image).permute(0, 2, 3, 1), (DEPTH,))
        return h, torch.cdist(h.flatten(0, 2), self.codes).argmin(1).view(h.shape[:3])

    def decode(self, h):
        return self.last(self.decoder(h.permute(0, 3, 1, 2))).tanh()

    def forward(self, image):
        h, tokens = self.tokens(image)
        chosen = self.codes[tokens]
        through = h + (chosen - h).detach()  # the code's value, the encoder's gradient
        away = {"codebook": (chosen - h.detach()).square(), "commitment": (h - chosen.detach()).square()}
        return pg.GeneratorOutput(self.decode(through), away)


class Patches(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(*conv(1, width, 2), *conv(width, 2 * width, 2), nn.Conv2d(2 * width, 1, 3))

    def forward(self, image):
        return self.layers(image)


def trainer(steps=400, seed=0, out="runs/vqgan", settings=None):
    torch.manual_seed(seed)
    adam = {"lr": 2e-3, "arguments": {"betas": [0.5, 0.99]}}
    kimg = steps * BATCH / 1000
    chosen = {
        "train.batch": BATCH, "train.kimg": kimg, "g.optimizer": adam, "d.optimizer": adam,
        "adversarial": {"weight": 0.2, "start_kimg": kimg / 3, "d_start_kimg": kimg / 3},
        "balancer": {"name": "adaptive_weight", "last_layer": "last"},
    }  # fmt: skip
    terms = [
        pg.Term(name="reconstruction", function=lambda o, i: (o.images - i.real_sample).abs(), weight=4.0),
        pg.Term(name="codebook", function=lambda outputs, inputs: outputs.extra["codebook"]),
        pg.Term(name="commitment", function=lambda outputs, inputs: outputs.extra["commitment"], weight=0.25),
    ]
    data = digits.source(DIGITS, "train")
    return pg.Trainer(Autoencoder(), Patches(), data, terms=terms, out=out, settings={**chosen, **(settings or {})})


def reconstructed(net):
    """Held-out digits, their reconstructions from tokens alone, and the tokens (N, 4, 4)."""
    x = digits.source(DIGITS, "held_out").fetch(torch.arange(360).numpy())["image"] / 127.5 - 1
    with torch.no_grad():
        tokens = net.tokens(x)[1]
        return x, net.decode(net.codes[tokens]), tokens


if __name__ == "__main__":
    run = trainer(*map(int, sys.argv[1:])).run()
    rows = torch.stack(reconstructed(run.generator)[:2])[:, :16, 0].permute(0, 2, 1, 3).reshape(32, 16 * 16)
    Image.fromarray(((rows + 1) * 127.5).byte().numpy()).resize((16 * 64, 32 * 4), 0).save("vqgan.png")
