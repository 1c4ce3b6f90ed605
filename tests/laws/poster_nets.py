"""One pair of networks, as a file of `models/` and as the poster's classes; with all that has a state of its own."""

import torch
import torch.nn.functional as F
from torch import nn

from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.spectral_norm import spectral_norm

LATENT, CLASSES = 6, 10


class Generator(nn.Module):
    def __init__(self, options=None, shape=(1, 8, 8), num_classes=CLASSES):
        super().__init__()
        self.latent, self.num_classes = LATENT, num_classes
        self.label = nn.Embedding(CLASSES, 4)
        self.body = nn.Sequential(nn.Linear(LATENT + 4, 64), nn.Unflatten(1, (4, 4, 4)), AffineBatchNorm(4), nn.ReLU())
        self.paint = nn.Sequential(nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1), nn.Tanh())

    def forward(self, z, y=None):
        return self.paint(self.body(torch.cat([z, self.label(y)], 1)))


class Discriminator(nn.Module):
    def __init__(self, options=None, shape=(1, 8, 8), num_classes=CLASSES):
        super().__init__()
        self.see = nn.Sequential(spectral_norm(nn.Conv2d(1, 4, 3, padding=1)), nn.LeakyReLU(0.2), nn.Dropout(0.2))
        self.judge, self.label = spectral_norm(nn.Linear(256, 1)), nn.Embedding(CLASSES, 256)

    def forward(self, x, y=None):
        h = self.see(x).flatten(1)
        return self.judge(h).squeeze(1) + (self.label(y) * h).mean(1)


class PosterGenerator:
    """The parts of a `Generator`, in attributes of an object that is no module."""

    latent, num_classes = LATENT, CLASSES

    def __init__(self, of):
        self.label, self.body, self.paint = of.label, of.body, of.paint

    def model_fn(self, latent_var, y):
        return Generator.forward(self, latent_var, y)


class PosterDiscriminator:
    def __init__(self, of):
        self.see, self.judge, self.label = of.see, of.judge, of.label

    def model_fn(self, x, y):
        out_logit = Discriminator.forward(self, x, y)
        return F.sigmoid(out_logit), out_logit
