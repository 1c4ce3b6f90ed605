"""A vocoder with four discriminators of unequal size, float64: settings of three papers, and their plain loops."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import paragan as pg
from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.types import Batch, Rows, Side
from paragan.layers.init import initialise
from paragan.parallel import Strategy

LENGTH, FRAMES, LATENT, BATCH, STEPS = 48, 6, 4, 8, 4
ARGUMENTS = ("audio", "frames")


class Vocoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Linear(FRAMES, 10)
        self.layers = nn.Sequential(nn.Linear(LATENT + 10, 24), nn.Tanh(), nn.Linear(24, LENGTH))

    def forward(self, z, frames=None):
        frames = z.new_zeros(len(z), FRAMES) if frames is None else frames
        return self.layers(torch.cat([z, self.frames(frames)], 1)).tanh()[:, None]


class Fold(nn.Module):
    """Folds the wave by a period: one of a multi-period discriminator.

    No last bias: under hinge its gradient is rounding, which Adam would make steps of.
    """

    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self.period = period
        self.first = nn.Conv2d(1, width, (3, 1), (2, 1))
        self.second = nn.Conv2d(width, width + 2, (3, 1))
        self.last = nn.Conv2d(width + 2, 1, 1, bias=False)

    def forward(self, wave, frames=None):
        a = F.leaky_relu(self.first(wave.unflatten(2, (-1, self.period))), 0.1)
        b = F.leaky_relu(self.second(a), 0.1)
        return self.last(b).flatten(1), [a, b]


class Scale(nn.Module):
    """Reads the averaged wave: one of a multi-scale, or multi-resolution, discriminator."""

    def __init__(self, averaged: int, width: int) -> None:
        super().__init__()
        self.averaged = averaged
        self.first = nn.Conv1d(1, width, 5, 2)
        self.last = nn.Conv1d(width, 1, 3, bias=False)

    def forward(self, wave, frames=None):
        h = F.leaky_relu(self.first(F.avg_pool1d(wave, self.averaged)), 0.1)
        return self.last(h), [h]


class Several(nn.Module):
    """Returns a list, as published multi-period discriminators do."""

    def __init__(self, *nets: nn.Module) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(self, *inputs):
        return [net(*inputs) for net in self.nets]


def network(side: Side) -> nn.Module:
    if side is Side.G:
        net: nn.Module = Vocoder()
    else:
        net = pg.Discriminators(mpd=Several(Fold(2, 3), Fold(3, 5)), mrd=Several(Scale(1, 4), Scale(4, 2)))
    net.weight_init = "orthogonal"
    initialise(net.double(), 0, side.value)
    return net


def mel(wave: Tensor) -> Tensor:
    return (wave.unfold(-1, 8, 4).square().mean(-1) + 0.05).log()


@dataclass(frozen=True)
class Paper:
    """Settings here, and the publication's losses: lists of (logits, features) per group to D's and G's loss."""

    loss: pg.Loss
    adversarial: pg.AdversarialOptions
    matching: pg.FeatureMatchingL1Options
    mel: float
    betas: tuple[float, float]
    max_norm: dict[Side, float | None]
    d_loss: Callable[[dict, dict], Tensor]
    g_loss: Callable[[dict, dict], Tensor]


def all_of(outputs: dict) -> list:
    return [*outputs["mpd"], *outputs["mrd"]]


def least_squares_d(real: dict, fake: dict) -> Tensor:
    """HiFi-GAN and DAC: one sum over all discriminators."""
    loss = 0
    for (on_real, _), (on_fake, _) in zip(all_of(real), all_of(fake), strict=True):
        loss = loss + torch.mean((1 - on_real) ** 2) + torch.mean(on_fake**2)
    return loss


def least_squares_g(real: dict, fake: dict) -> Tensor:
    generated, features = 0, 0
    for (_, real_layers), (on_fake, fake_layers) in zip(all_of(real), all_of(fake), strict=True):
        generated = generated + torch.mean((1 - on_fake) ** 2)
        for r, f in zip(real_layers, fake_layers, strict=True):
            features = features + F.l1_loss(f, r.detach())
    return generated + 2 * features


def vocos_d(real: dict, fake: dict) -> Tensor:
    """Vocos: the mean over each group, the second group weighted."""
    groups = []
    for group in ("mpd", "mrd"):
        loss = 0
        for (on_real, _), (on_fake, _) in zip(real[group], fake[group], strict=True):
            loss = loss + torch.mean(torch.clamp(1 - on_real, min=0)) + torch.mean(torch.clamp(1 + on_fake, min=0))
        groups.append(loss / len(real[group]))
    return groups[0] + 0.1 * groups[1]


def vocos_g(real: dict, fake: dict) -> Tensor:
    groups = []
    for group in ("mpd", "mrd"):
        generated, features = 0, 0
        for (_, real_layers), (on_fake, fake_layers) in zip(real[group], fake[group], strict=True):
            generated = generated + torch.mean(torch.clamp(1 - on_fake, min=0))
            for r, f in zip(real_layers, fake_layers, strict=True):
                features = features + torch.mean(torch.abs(r - f))
        groups.append((generated + features) / len(real[group]))
    return groups[0] + 0.1 * groups[1]


def relativistic(real: dict, fake: dict) -> Tensor:
    """Relativistic average (RaSGAN): means over the batch, of each discriminator by itself."""
    loss = 0
    for (on_real, _), (on_fake, _) in zip(all_of(real), all_of(fake), strict=True):
        loss = loss + F.softplus(on_fake.mean() - on_real).mean() + F.softplus(on_fake - on_real.mean()).mean()
    return loss


_TWICE = pg.AdversarialOptions(weights={"mpd": 2.0, "mrd": 2.0})  # their least squares has no halves
_FREE = {Side.G: None, Side.D: None}
_MATCHING = pg.FeatureMatchingL1Options(weight=2.0)
PAPERS = {
    "hifigan": Paper(
        *(pg.least_squares_loss, _TWICE, _MATCHING, 45.0, (0.8, 0.99), _FREE, least_squares_d, least_squares_g)
    ),
    "dac": Paper(
        *(pg.least_squares_loss, _TWICE, _MATCHING, 15.0, (0.8, 0.99)),
        {Side.G: 1000.0, Side.D: 0.2},  # DAC's 10 would not clip these small ones
        least_squares_d,
        least_squares_g,
    ),
    "vocos": Paper(
        pg.hinge_both_loss,
        pg.AdversarialOptions(combine="mean", weights={"mrd": 0.1}),
        pg.FeatureMatchingL1Options(weight=1.0, discriminators="mean", weights={"mrd": 0.1}),
        *(45.0, (0.8, 0.9), _FREE, vocos_d, vocos_g),
    ),
}
COUPLED = {  # compares samples: in one part
    "relativistic": Paper(
        *(pg.relativistic_average_loss(pg.RelativisticAverageOptions()), pg.AdversarialOptions()),
        pg.FeatureMatchingL1Options(weight=0.0),
        *(1.0, (0.8, 0.9), _FREE, relativistic, lambda real, fake: relativistic(fake, real)),
    )
}


def player(side: Side, name: str, strategy: Strategy, world: World = ALONE, parts: int = 1) -> pg.Player:
    paper = (PAPERS | COUPLED)[name]
    policy = pg.Policy(
        kind=torch.optim.AdamW,
        lr=1e-2,
        arguments={"betas": paper.betas},
        max_norm=paper.max_norm[side],
        micro_batches=parts,
    )
    return pg.Player(side=side, net=strategy.prepare(lambda: network(side), world), strategy=strategy, policy=policy)


def game(name: str, g, d, conditioned: bool = True) -> pg.GAN:
    """conditioned: frames for G, feature matching and the distance of spectra; all need real samples in G's turn."""
    paper = (PAPERS | COUPLED)[name]
    terms = ()
    if conditioned:
        matching = pg.FeatureMatchingL1Penalty(paper.matching)
        spectra = pg.Term(
            name="mel", function=lambda o, i: (mel(o.images) - mel(i.real_sample)).abs(), weight=paper.mel
        )
        terms = (matching, spectra)
    prior = pg.Prior(
        seed=5, latent=LATENT, dtype=torch.float64, discriminator_arguments=ARGUMENTS if conditioned else ARGUMENTS[:1]
    )
    return pg.GAN(g=g, d=d, loss=paper.loss, prior=prior, g_penalties=terms, adversarial=paper.adversarial)


def batches(first: int = 0, count: int = BATCH, start: int = 0) -> Iterator[Batch]:
    """Rows of an endless stream of global batches, from number `start` on."""
    step = start
    while True:
        rows = Rows(step=step, first=first, count=count, total=BATCH)
        audio = rng.normal(3, "audio", rows, (1, LENGTH)).double().tanh()
        yield Batch(rows, {"audio": audio, "frames": rng.normal(3, "frames", rows, (FRAMES,)).double()})
        step += 1


def plain(name: str, steps: int = STEPS, is_shared: bool = False) -> tuple[dict[Side, nn.Module], list[dict]]:
    """The publication's loop in torch alone; the networks, and losses by step. is_shared: one fake for both players."""
    paper = (PAPERS | COUPLED)[name]
    nets = {side: network(side) for side in Side}
    optimizers = {side: torch.optim.AdamW(net.parameters(), 1e-2, paper.betas) for side, net in nets.items()}
    latents = pg.Prior(seed=5, latent=LATENT, dtype=torch.float64)  # only for equal draws
    losses = []

    def step(side: Side, loss: Tensor) -> float:
        optimizers[side].zero_grad()
        loss.backward()
        if paper.max_norm[side] is not None:
            nn.utils.clip_grad_norm_(nets[side].parameters(), paper.max_norm[side])
        optimizers[side].step()
        return loss.item()

    for _, batch in zip(range(steps), batches(), strict=False):
        real, frames = batch.tensors["audio"], batch.tensors["frames"]
        z = {stream: latents.draw(stream, batch.rows)[0] for stream in ("d", "g")}
        fake = nets[Side.G](z["g"], frames)
        for_d = fake if is_shared else nets[Side.G](z["d"], frames)
        d_loss = step(Side.D, paper.d_loss(nets[Side.D](real), nets[Side.D](for_d.detach())))
        distance = F.l1_loss(mel(fake), mel(real))
        g_loss = paper.g_loss(nets[Side.D](real), nets[Side.D](fake)) + paper.mel * distance
        losses.append({"d": d_loss, "g": step(Side.G, g_loss)})
    return nets, losses


def total(record: dict[str, float], side: str) -> float:
    """The loss of a side: all its terms, without the observations of each discriminator."""
    terms = [value for name, value in record.items() if name.startswith(f"{side}/loss/") and name.count("/") == 2]
    return sum(terms)
