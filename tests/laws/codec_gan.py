"""A small codec on synthesised speech, float64, and its plain loop, as in EnCodec."""

from dataclasses import replace
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import paragan as pg
from paragan.core.types import Side
from paragan.datasets import speech
from paragan.layers.init import initialise
from paragan.layers.log_mel import LogMel
from paragan.models import encodec
from paragan.parallel import none
from paragan.penalties import codebook, l1, log_mel

BATCH, STEPS, LENGTH = 6, 50, 256
SHARES = {"adversarial": 4.0, "feature_matching_l1": 4.0, "log_mel": 2.0, "l1": 0.1}
DECAY = 0.999
OPTIONS = encodec.Options(width=2, rates=(2, 4), codebooks=2, codes=8, depth=3, windows=(64, 32))
ADAM = {"betas": (0.5, 0.9), "eps": 1e-5}  # the gradient of D's last bias is rounding, which Adam would make steps of
MEL = {"n_fft": 64, "hop": 32, "n_mels": 8}


def network(side: Side) -> nn.Module:
    wider = replace(OPTIONS, width=4)  # D is half as wide
    net = encodec.Generator(OPTIONS, (1, LENGTH)) if side is Side.G else encodec.Discriminator(wider, (1, LENGTH))
    net.weight_init = "orthogonal"
    initialise(net.double(), 0, side.value)
    return net


def player(side: Side, strategy=None, mesh=None, parts: int = 1) -> pg.Player:
    strategy = strategy or none.Strategy()
    policy = pg.Policy(kind=torch.optim.Adam, lr=1e-3, arguments=ADAM, micro_batches=parts)
    return pg.Player(side=side, net=strategy.prepare(lambda: network(side), mesh), strategy=strategy, policy=policy)


def game(g: pg.Player, d: pg.Player, is_relative: bool = True) -> pg.GAN:
    matching = pg.FeatureMatchingL1Options(weight=1.0, discriminators="mean", layers="mean", relative=is_relative)
    terms = (
        pg.FeatureMatchingL1Penalty(matching),
        log_mel.Penalty(log_mel.Options(weight=3.0, **MEL)),
        l1.Penalty(l1.Options(weight=1.0)),
        codebook.Penalty(codebook.Options(weight=0.5)),
    )
    names = ("audio",)
    prior = pg.Prior(seed=5, latent=0, dtype=torch.float64, discriminator_arguments=names, generator_arguments=names)
    balancer = pg.GradientBalancer(pg.GradientBalancerOptions(weights=SHARES, decay=DECAY))
    adversarial = pg.AdversarialOptions(combine="mean")
    made = pg.GAN(
        g=g, d=d, loss=pg.hinge_both_loss, prior=prior, g_penalties=terms, adversarial=adversarial, balancer=balancer
    )
    return made


@cache
def audio() -> Tensor:
    """Segments of the recipe's data set, (n, 1, LENGTH)."""
    source = speech.source(speech.Options(utterances=STEPS, segment=8000), "train")
    whole = source.fetch(list(range(STEPS)))["audio"][:, :, : BATCH * LENGTH].double()
    return whole.reshape(STEPS * BATCH, 1, LENGTH)


def batches(first: int = 0, count: int = BATCH, start: int = 0):
    for step in range(start, STEPS):
        rows = pg.Rows(step=step, first=first, count=count, total=BATCH)
        yield pg.Batch(rows, {"audio": audio()[step * BATCH :][rows.window]})


class PlainBalancer:
    """`Balancer` of EnCodec, with `per_batch_item`."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(SHARES, 0.0)
        self.counts = dict.fromkeys(SHARES, 0.0)

    def backward(self, losses: dict[str, Tensor], output: Tensor) -> None:
        gradient = torch.zeros_like(output)
        for name, loss in losses.items():
            (found,) = torch.autograd.grad(loss, [output], retain_graph=True)
            norm = found.norm(dim=(1, 2)).mean().item()
            self.sums[name] = self.sums[name] * DECAY + norm
            self.counts[name] = self.counts[name] * DECAY + 1
            average = self.sums[name] / self.counts[name]
            gradient += SHARES[name] / sum(SHARES.values()) * found / (1e-12 + average)
        output.backward(gradient, retain_graph=True)


def plain_losses(d: nn.Module, made: Tensor, real: Tensor, is_relative: bool) -> dict[str, Tensor]:
    """The balanced losses of G, means over the batch."""
    adversarial = 0
    matching = 0
    on_real = d(real)
    on_fake = d(made)
    for (_, real_layers), (fake, fake_layers) in zip(on_real, on_fake, strict=True):
        adversarial = adversarial + F.relu(1 - fake).mean() / len(on_fake)
        for r, f in zip(real_layers, fake_layers, strict=True):
            scale = r.detach().abs().mean() if is_relative else 1
            matching = matching + (f - r.detach()).abs().mean() / scale / len(on_fake) / len(fake_layers)
    mel = LogMel(8000, **MEL)
    distance = (mel(made) - mel(real)).abs().mean()
    names = ("adversarial", "feature_matching_l1", "log_mel", "l1")
    return dict(zip(names, (adversarial, matching, distance, (made - real).abs().mean()), strict=True))


@cache
def plain(is_relative: bool = True, steps: int = STEPS) -> dict[Side, nn.Module]:
    """The networks after so many steps of the plain loop."""
    nets = {side: network(side) for side in Side}
    g = nets[Side.G]
    d = nets[Side.D]
    steppers = {side: torch.optim.Adam(net.parameters(), 1e-3, **ADAM) for side, net in nets.items()}
    balancer = PlainBalancer()
    for step in range(steps):
        real = audio()[step * BATCH : (step + 1) * BATCH]
        fake = g(real).images.detach()
        loss = 0
        for (on_real, _), (on_fake, _) in zip(d(real), d(fake), strict=True):
            loss = loss + (F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()) / len(OPTIONS.windows)
        steppers[Side.D].zero_grad()
        loss.backward()
        steppers[Side.D].step()
        made = g(real)
        steppers[Side.G].zero_grad()
        balancer.backward(plain_losses(d, made.images, real, is_relative), made.images)
        (0.5 * (made.extra["codebook"].mean() + 0.25 * made.extra["commitment"].mean())).backward()
        steppers[Side.G].step()
    return nets
