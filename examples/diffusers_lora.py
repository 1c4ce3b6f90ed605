"""LoRA on a U-Net of diffusers as a one-step generator of digits, and the merged U-Net back in their format.

The folder is one that `save_pretrained` wrote, of an unconditional `UNet2DModel` for grey images of 8x8; without one,
a small untrained U-Net is written first. Only the adapters train and are in checkpoints. Needs the extra:
`pip install "paragan[diffusers]"`.

    python examples/diffusers_lora.py [FOLDER]

Trains about a minute on one CPU core, in runs/diffusers_lora, and writes runs/diffusers_lora/unet.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import paragan as pg
from paragan.datasets import digits

OUT = Path("runs/diffusers_lora")
LORA = {"name": "lora", "rank": 4, "match": ["network.*.conv?.weight", "network.*.to_?.weight"]}


def small_unet(folder, widths=(32, 32)):
    import diffusers

    torch.manual_seed(0)
    down = ("DownBlock2D", "AttnDownBlock2D")
    up = ("AttnUpBlock2D", "UpBlock2D")
    sizes = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "layers_per_block": 1, "norm_num_groups": 8}
    net = diffusers.UNet2DModel(**sizes, block_out_channels=widths, down_block_types=down, up_block_types=up)
    net.save_pretrained(folder)
    return folder


def discriminator(width=32):
    layers = nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, width, 4, 2, 1), nn.LeakyReLU(0.2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width, 1), nn.Flatten(0))


def trainer(folder, out=OUT, settings=None):
    torch.manual_seed(0)
    source = digits.source(digits.Options(size=8), "train")
    images = source.fetch(range(len(source)))["image"]
    adam = {"lr": 1e-3, "arguments": {"betas": [0.0, 0.99]}}
    chosen = {
        "train.batch": 32, "train.kimg": 12, "every.sample_kimg": 2, "every.save_kimg": 4,
        "penalties": [{"name": "r1", "weight": 1.0, "interval": 8}],
        "g.optimizer": adam, "d.optimizer": adam, "g.ema.half_life_kimg": 0.5, "g.adapter": LORA,
        **(settings or {}),
    }  # fmt: skip
    g = pg.load_diffusers(folder)
    return pg.Trainer(g, discriminator(), {"image": images}, loss="nonsaturating", settings=chosen, out=out)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else small_unet(OUT.with_name("diffusers_unet"))
    run = trainer(folder).run()
    run.generator.network.save_pretrained(OUT / "unet")
