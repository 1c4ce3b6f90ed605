"""Figure 5 of the ParaGAN poster, with its missing parts filled in: a config, two small networks, data.

    python examples/paragan_poster.py
    torchrun --nproc-per-node 2 examples/paragan_poster.py

Trains about 20 s on one CPU core. The run folder is runs/paragan_poster; the same command resumes from there.
Words such as `train.kimg=10` or `scheme=asynchronous` change the config.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg

WORDS = ["train.kimg=32", "every.sample_kimg=4", "every.save_kimg=4", "every.score_kimg=0", "g.ema.half_life_kimg=1"]

cfg = pg.config.read_recipe("digits", [*WORDS, *sys.argv[1:]])  # 16x16 images of ten classes
torch.manual_seed(cfg.seed)


class Generator:
    def __init__(self, latent=32, width=16):
        self.latent = latent
        self.label = nn.Embedding(10, latent)
        self.net = nn.Sequential(
            *(nn.Linear(2 * latent, 2 * width * 16), nn.ReLU(), nn.Unflatten(1, (2 * width, 4, 4))),
            *(nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Tanh()),
        )

    def model_fn(self, latent_var, y):
        # generator model
        output = self.net(torch.cat([latent_var, self.label(y)], 1))
        return output


class Discriminator:
    def __init__(self, width=16):
        self.net = nn.Sequential(
            *(nn.Conv2d(1, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Flatten()),
            *(nn.Linear(2 * width * 16, 64), nn.LeakyReLU(0.2)),
        )
        self.out, self.label = nn.Linear(64, 1), nn.Embedding(10, 64)

    def model_fn(self, x, y):
        # discriminator model
        h = self.net(x)
        out_logit = self.out(h).squeeze(1) + (self.label(y) * h).sum(1)
        output = F.sigmoid(out_logit)
        return output, out_logit


scale_mgr = pg.ScalingManager(config=cfg, bs=2048, num_workers=128)

g = Generator()
d = Discriminator()
gan = pg.Estimator(g, d)

# train
for step in cfg.max_steps:
    scale_mgr.train(gan)

# evaluate
scale_mgr.eval(metric="fid")
