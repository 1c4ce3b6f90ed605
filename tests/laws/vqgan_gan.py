"""A small VQGAN on digits and its plain loop, as in taming-transformers.

D begins at step 10, G's adversarial term at step 20, with the adaptive weight times 0.8.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import paragan as pg
from paragan.core.types import Side
from paragan.datasets import digits
from paragan.parallel import none

BATCH, STEPS, D_START, G_START, WEIGHT = 6, 50, 10, 20, 0.8
CODES, DEPTH = 8, 3


class Autoencoder(nn.Module):
    """Encoder, nearest of 8 codes, decoder; the losses of the codebook are extra outputs."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Linear(DEPTH, CODES, bias=False)
        self.encoder = nn.Sequential(nn.Conv2d(1, 6, 4, 4), nn.Tanh(), nn.Conv2d(6, DEPTH, 1))
        self.decoder = nn.Sequential(nn.Conv2d(DEPTH, 6, 1), nn.Tanh(), nn.ConvTranspose2d(6, 1, 4, 4))

    def forward(self, z: Tensor, x: Tensor) -> pg.GeneratorOutput:
        h = self.encoder(x).permute(0, 2, 3, 1)
        chosen = self.codes.weight[torch.cdist(h.flatten(0, 2), self.codes.weight).argmin(1)].view(h.shape)
        image = self.decoder((h + (chosen - h).detach()).permute(0, 3, 1, 2))
        away = {"codebook": (chosen - h.detach()).square(), "commitment": (h - chosen.detach()).square()}
        return pg.GeneratorOutput(image, away)


class Patches(nn.Module):
    """Patch logits, and a count of its calls."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 5, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(5, 1, 3))
        self.calls = 0

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        self.calls += 1
        return self.layers(x)


def network(side: Side) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return (Autoencoder() if side is Side.G else Patches()).double()


def player(side: Side, strategy=None, mesh=None, parts: int = 1) -> pg.Player:
    strategy = strategy or none.Strategy()
    policy = pg.Policy(kind=torch.optim.Adam, lr=0.01, arguments={"betas": (0.5, 0.9)}, micro_batches=parts)
    return pg.Player(side=side, net=strategy.prepare(lambda: network(side), mesh), strategy=strategy, policy=policy)


def game(g: pg.Player, d: pg.Player) -> pg.GAN:
    terms = (
        pg.Term(name="l1", function=lambda outputs, inputs: (outputs.images - inputs.condition).abs()),
        pg.Term(name="codebook", function=lambda outputs, inputs: outputs.extra["codebook"]),
        pg.Term(name="commitment", function=lambda outputs, inputs: outputs.extra["commitment"], weight=0.25),
    )
    prior = pg.Prior(seed=5, latent=0, dtype=torch.float64, discriminator_arguments=("image", "condition"))
    when = pg.AdversarialOptions(weight=WEIGHT, start_kimg=G_START * BATCH / 1000, d_start_kimg=D_START * BATCH / 1000)
    balancer = pg.AdaptiveWeightBalancer(pg.AdaptiveWeightOptions(last_layer="decoder.2"))
    return pg.GAN(g=g, d=d, loss=pg.hinge_loss, prior=prior, g_penalties=terms, adversarial=when, balancer=balancer)


@cache
def images() -> Tensor:
    source = digits.source(digits.Options(size=8), "train")
    return torch.as_tensor(source.fetch(torch.arange(STEPS * BATCH).numpy())["image"]).double() / 127.5 - 1


def batches(first: int = 0, count: int = BATCH, start: int = 0):
    for step in range(start, STEPS):
        rows = pg.Rows(step=step, first=first, count=count, total=BATCH)
        x = images()[step * BATCH :][rows.window]
        yield pg.Batch(rows, {"image": x, "condition": x})


def adaptive_weight(likelihood: Tensor, adversarial: Tensor, last: Tensor) -> Tensor:
    """`calculate_adaptive_weight` of taming-transformers."""
    of_likelihood, of_adversarial = (
        torch.autograd.grad(x, last, retain_graph=True)[0] for x in (likelihood, adversarial)
    )
    return (of_likelihood.norm() / (of_adversarial.norm() + 1e-4)).clamp(0, 1e4).detach()


@cache
def plain() -> tuple[dict[Side, nn.Module], list[dict[str, float]]]:
    """The plain loop; the networks at its end, and the losses of each step."""
    nets = {side: network(side) for side in Side}
    g = nets[Side.G]
    d = nets[Side.D]
    steppers = {side: torch.optim.Adam(net.parameters(), 0.01, (0.5, 0.9)) for side, net in nets.items()}
    losses = []
    for step in range(STEPS):
        x = images()[step * BATCH : (step + 1) * BATCH]
        found = {}
        if step >= D_START:
            fake = g(None, x).images.detach()
            loss = F.relu(1 - d(x)).mean() + F.relu(1 + d(fake)).mean()
            found["d/loss/adversarial"] = loss.item()
            steppers[Side.D].zero_grad()
            loss.backward()
            steppers[Side.D].step()
        made = g(None, x)
        l1 = (made.images - x).abs().mean()
        loss = l1 + made.extra["codebook"].mean() + 0.25 * made.extra["commitment"].mean()
        if step >= G_START:
            adversarial = -d(made.images).mean()
            weight = adaptive_weight(l1, adversarial, g.decoder[2].weight)
            found |= {"g/loss/adversarial": WEIGHT * adversarial.item(), "g/balancer/adversarial": weight.item()}
            loss = loss + WEIGHT * weight * adversarial
        steppers[Side.G].zero_grad()
        loss.backward()
        steppers[Side.G].step()
        losses.append(found)
    return nets, losses
