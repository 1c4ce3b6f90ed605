"""A whole GAN training in one file: conditional, spectral norm, hinge loss, lazy R1, averaged generator. Only torch
(and numpy, to read the digits). paragan computes the same for these settings; a test holds it to 1e-12. Run it with
python."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

LATENT, CLASSES, BATCH = 32, 10, 64
R1_WEIGHT, R1_EVERY, HALF_LIFE_IMAGES = 0.05, 4, 2000
ADAM = {"lr": 5e-4, "betas": (0.0, 0.9), "fused": True}


class NaiveSpectralNorm(nn.Module):
    """W / sigma(W) (Miyato et al. 2018); `advance` does one power iteration per update of the network."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("u", F.normalize(torch.randn(len(weight)), dim=0))
        self.register_buffer("v", F.normalize(weight.detach().flatten(1).T @ self.u, dim=0))

    def forward(self, weight):
        return weight / (self.u @ (weight.flatten(1) @ self.v))


def naive_spectral_norm(layer):
    parametrize.register_parametrization(layer, "weight", NaiveSpectralNorm(layer.weight))
    return layer


@torch.no_grad()
def advance(net):
    for module in net.modules():
        if isinstance(module, parametrize.ParametrizationList):
            norm, rows = module[0], module.original.flatten(1)
            norm.v.copy_(F.normalize(rows.T @ norm.u, dim=0))
            norm.u.copy_(F.normalize(rows @ norm.v, dim=0))


class Generator(nn.Module):
    def __init__(self, norm, width=64):
        super().__init__()
        self.embed = nn.Embedding(CLASSES, LATENT)
        self.stem = norm(nn.Linear(2 * LATENT, width * 4 * 4))
        self.conv1 = norm(nn.Conv2d(width, width, 3, padding=1))
        self.paint = norm(nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, z, y):
        h = F.leaky_relu(self.stem(torch.cat([z, self.embed(y)], 1)), 0.2).unflatten(1, (-1, 4, 4))
        h = F.leaky_relu(self.conv1(F.interpolate(h, scale_factor=2)), 0.2)
        return torch.tanh(self.paint(h))


class Discriminator(nn.Module):
    def __init__(self, norm, width=64):
        super().__init__()
        self.conv1 = norm(nn.Conv2d(1, width, 3, padding=1))
        self.conv2 = norm(nn.Conv2d(width, 2 * width, 3, padding=1))
        self.linear = norm(nn.Linear(2 * width * 4 * 4, 1))
        self.embed = norm(nn.Embedding(CLASSES, 2 * width * 4 * 4))

    def forward(self, x, y):
        h = F.avg_pool2d(F.leaky_relu(self.conv1(x), 0.2), 2)
        h = F.leaky_relu(self.conv2(h), 0.2).flatten(1)
        return self.linear(h).squeeze(1) + (self.embed(y) * h).sum(1)


def train_step(step, g, d, average, opt_g, opt_d, real, y_real, draw):
    """One update of D on real and fake, one of G through the frozen D, one of the average."""
    z, y = draw("d", step)
    with torch.no_grad():
        fake = g(z, y)
    advance(d)
    penalised = step % R1_EVERY == 0
    real = real.detach().requires_grad_(penalised)
    logits_real, logits_fake = d(torch.cat([real, fake]), torch.cat([y_real, y])).chunk(2)
    loss_d = (F.relu(1 - logits_real) + F.relu(1 + logits_fake)).mean()
    if penalised:
        (slope,) = torch.autograd.grad(logits_real.sum(), real, create_graph=True)
        loss_d = loss_d + R1_EVERY * R1_WEIGHT / 2 * slope.square().sum((1, 2, 3)).mean()
    loss_d.backward()
    opt_d.step()
    opt_d.zero_grad()

    z, y = draw("g", step)
    advance(g)
    d.requires_grad_(False)
    loss_g = -d(g(z, y), y).mean()
    loss_g.backward()
    d.requires_grad_(True)
    opt_g.step()
    opt_g.zero_grad()
    weight = 1 - 0.5 ** (len(real) / HALF_LIFE_IMAGES)
    with torch.no_grad():
        torch._foreach_lerp_(list(average.parameters()), list(g.parameters()), weight)
        for mine, theirs in zip(average.buffers(), g.buffers(), strict=True):
            mine.copy_(theirs)
    return loss_d.detach(), loss_g.detach()


def main(steps):
    digits = np.load(Path(__file__).resolve().parents[1] / "src/paragan/datasets/digits.npz", allow_pickle=False)
    images, labels = torch.from_numpy(digits["images"])[:, None] / 8 - 1, torch.from_numpy(digits["labels"]).long()
    g, average, d = (kind(naive_spectral_norm) for kind in (Generator, Generator, Discriminator))
    average.load_state_dict(g.state_dict())
    opt_g, opt_d = torch.optim.Adam(g.parameters(), **ADAM), torch.optim.Adam(d.parameters(), **ADAM)
    draw = lambda stream, step: (torch.randn(BATCH, LATENT), torch.randint(CLASSES, (BATCH,)))  # noqa: E731
    for step in range(steps):
        rows = torch.randint(len(images), (BATCH,))
        loss_d, loss_g = train_step(step, g, d, average, opt_g, opt_d, images[rows], labels[rows], draw)
        if step % 100 == 0:
            print(f"step {step}  D {loss_d.item():.3f}  G {loss_g.item():.3f}")


if __name__ == "__main__":
    main(steps=1000)
