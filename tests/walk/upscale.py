"""Super-resolution 16 -> 32 px in the manner of SRGAN, as a user writes it, on a folder of photographs."""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import paragan as pg


def photos(folder, size):
    images = [
        Image.open(path).convert("RGB").resize((size, size), Image.BICUBIC)
        for path in sorted(Path(folder).rglob("*.*"))
    ]
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 127.5 - 1


class Upscaler(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        body = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
        for _ in range(3):
            body += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        self.body = nn.Sequential(*body, nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, small):
        return nn.functional.interpolate(small, scale_factor=2, mode="bicubic") + self.body(small)


def discriminator(width=16):
    return nn.Sequential(
        *(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2)),
        nn.Conv2d(2 * width, 1, 3, padding=1),
    )


def psnr(made, real):
    return float(10 * (4 / (made - real).square().mean((1, 2, 3))).log10().mean())


if __name__ == "__main__":
    torch.manual_seed(0)
    large, small = photos(sys.argv[1], 32), photos(sys.argv[1], 16)
    near = pg.Term(
        name="near",
        function=lambda outputs, inputs: (outputs.images - inputs.real.tensors["large"]).abs(),
        weight=100.0,
    )
    adam = {"lr": 1e-3, "arguments": {"betas": [0.5, 0.99]}}
    run = pg.Trainer(
        Upscaler(),
        discriminator(),
        {"large": large[50:], "small": small[50:]},
        sample="large",
        loss="hinge",
        terms=[near],
        settings={
            "train.batch": 16,
            "train.kimg": 4,
            "g.optimizer": adam,
            "d.optimizer": adam,
            "evaluation.features": None,  # PSNR is the score, below
        },
        held_out={"large": large[:50], "small": small[:50]},
        out="runs/upscale",
    ).run()
    plain = nn.functional.interpolate(small[:50], scale_factor=2, mode="bicubic")
    ours, bicubic = psnr(run.generator(small[:50]), large[:50]), psnr(plain, large[:50])
    print(f"PSNR {ours:.2f} dB, bicubic {bicubic:.2f} dB")
    if ours < bicubic + 0.5:
        sys.exit("the network is not better than bicubic interpolation")
