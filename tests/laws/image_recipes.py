"""Small networks of the recipes `translate` and `superres` on digits, float64, and their plain loops."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import paragan as pg
from paragan.core.types import Side
from paragan.datasets import digits
from paragan.layers.init import initialise
from paragan.models import cyclegan, real_esrgan
from paragan.parallel import none
from paragan.penalties import cycle, l1

BATCH, STEPS, SIDE = 6, 30, 16
START = 12  # step of superres at which D, the adversarial loss and the features begin
SAMPLE = {"translate": "both", "superres": "image"}
INPUT = {"translate": "both", "superres": "low"}
MODELS = {
    "translate": (cyclegan, cyclegan.Options(width=2, blocks=1), (1, SIDE, 2 * SIDE)),
    "superres": (real_esrgan, real_esrgan.Options(width=4, blocks=1, d_width=2), (1, SIDE, SIDE)),
}
ADAM = {"betas": (0.5, 0.9), "eps": 1e-4}  # before instance norm gradients are rounding, which Adam would make steps of
RATE = 1e-3


def network(recipe: str, side: Side) -> nn.Module:
    model, options, shape = MODELS[recipe]
    kind = model.Generator if side is Side.G else model.Discriminator
    net = kind(options, shape)
    net.weight_init = "orthogonal"
    initialise(net.double(), 0, side.value)
    return net


def player(recipe: str, side: Side, strategy=None, mesh=None, parts: int = 1) -> pg.Player:
    strategy = strategy or none.Strategy()
    policy = pg.Policy(kind=torch.optim.Adam, lr=RATE, arguments=ADAM, micro_batches=parts)
    return pg.Player(
        side=side, net=strategy.prepare(lambda: network(recipe, side), mesh), strategy=strategy, policy=policy
    )


@cache
def features() -> nn.Module:
    """A frozen network of two layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.Tanh(), nn.Conv2d(4, 3, 3, 2, 1)).double()


def game(recipe: str, g: pg.Player, d: pg.Player) -> pg.GAN:
    start = START * BATCH / 1000
    if recipe == "translate":
        terms = (cycle.Penalty(cycle.Options(weight=10.0, identity=0.5)),)
        loss, adversarial = pg.least_squares_loss, pg.AdversarialOptions(weight=2.0)
    else:
        later = pg.WeightSchedule(start=0.0, final=0.7, from_kimg=start, shape="step")
        perceptual = pg.PerceptualLoss(network=features(), layers=["1", "2"], normalize=True, weight=later)
        terms = (l1.Penalty(l1.Options(weight=1.0)), perceptual)
        loss, adversarial = (
            pg.nonsaturating_loss(pg.NonsaturatingOptions()),
            pg.AdversarialOptions(weight=0.1, start_kimg=start, d_start_kimg=start),
        )
    prior = pg.Prior(
        seed=5,
        latent=0,
        dtype=torch.float64,
        discriminator_arguments=(SAMPLE[recipe],),
        generator_arguments=(INPUT[recipe],),
    )
    made = pg.GAN(g=g, d=d, loss=loss, prior=prior, g_penalties=terms, adversarial=adversarial)
    return made


@cache
def tensors(recipe: str) -> dict[str, Tensor]:
    """Samples of all steps: digits next to their negatives, or above their reduced copies."""
    source = digits.source(digits.Options(size=SIDE), "train")
    images = torch.as_tensor(source.fetch(torch.arange(STEPS * BATCH).numpy())["image"]).double() / 127.5 - 1
    if recipe == "translate":
        return {"both": torch.cat([images, -images.flip(0)], 3)}
    return {"image": images, "low": F.avg_pool2d(images, 4)}


def batches(recipe: str, first: int = 0, count: int = BATCH, start: int = 0):
    for step in range(start, STEPS):
        rows = pg.Rows(step=step, first=first, count=count, total=BATCH)
        found = {name: tensor[step * BATCH :][rows.window] for name, tensor in tensors(recipe).items()}
        yield pg.Batch(rows, found)


def cyclegan_losses(g: nn.Module, d: nn.Module, batch: dict[str, Tensor]):
    """The losses of D and G as functions, as in the authors' code with the recipe's weights."""
    a, b = batch["both"].chunk(2, 3)

    def of_d() -> Tensor:
        with torch.no_grad():
            fakes = g.to_a(b), g.to_b(a)
        loss = 0
        for net, real, fake in zip((d.of_a, d.of_b), (a, b), fakes, strict=True):
            loss = loss + ((net(real)[0] - 1).square().mean() + net(fake)[0].square().mean()) / 2
        return loss

    def of_g() -> Tensor:
        fake_a = g.to_a(b)
        fake_b = g.to_b(a)
        adversarial = (d.of_a(fake_a)[0] - 1).square().mean() + (d.of_b(fake_b)[0] - 1).square().mean()
        back = (g.to_a(fake_b) - a).abs().mean() + (g.to_b(fake_a) - b).abs().mean()
        same = (g.to_a(a) - a).abs().mean() + (g.to_b(b) - b).abs().mean()
        return adversarial + 10 * back + 5 * same

    return of_d, of_g


def unit(h: Tensor) -> Tensor:
    return h / (h.square().sum(1, keepdim=True) + 1e-10).sqrt()


def superres_losses(g: nn.Module, d: nn.Module, batch: dict[str, Tensor], has_begun: bool):
    """The losses of D and G as functions, as in Real-ESRGAN; None: D does not train yet."""
    image = batch["image"]

    def of_d() -> Tensor:
        with torch.no_grad():
            fake = g(batch["low"])
        return F.softplus(-d(image).logits_B).mean() + F.softplus(d(fake).logits_B).mean()

    def of_g() -> Tensor:
        made = g(batch["low"])
        loss = (made - image).abs().mean()
        if not has_begun:
            return loss
        loss = loss + 0.1 * F.softplus(-d(made).logits_B).mean()
        x, y = made, image
        for layer in features():
            x = layer(x)
            y = layer(y)
            if not isinstance(layer, nn.Conv2d) or layer.out_channels == 3:
                loss = loss + 0.7 * (unit(x) - unit(y)).abs().mean()
        return loss

    return of_d if has_begun else None, of_g


@cache
def plain(recipe: str) -> dict[Side, nn.Module]:
    """The networks after the plain loop."""
    nets = {side: network(recipe, side) for side in Side}
    g = nets[Side.G]
    d = nets[Side.D]
    steppers = {side: torch.optim.Adam(net.parameters(), RATE, **ADAM) for side, net in nets.items()}
    for step in range(STEPS):
        batch = {name: tensor[step * BATCH : (step + 1) * BATCH] for name, tensor in tensors(recipe).items()}
        if recipe == "translate":
            of_d, of_g = cyclegan_losses(g, d, batch)
        else:
            of_d, of_g = superres_losses(g, d, batch, step >= START)
        if of_d is not None:
            pg.begin_update(d)
            _step(steppers[Side.D], of_d())
        d.requires_grad_(False)
        _step(steppers[Side.G], of_g())
        d.requires_grad_(True)
    return nets


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
