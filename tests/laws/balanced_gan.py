"""A small autoencoder with three losses of its output and one of its code, and the plain loops of three balancers."""

import torch
from torch import nn

import paragan as pg
from paragan.core import rng
from paragan.core.types import Batch, Rows, Side
from paragan.losses import hinge
from paragan.parallel import none
from paragan.schemes import synchronous

BATCH, SIZE = 8, 12
WEIGHT = 0.8  # of the adversarial loss
STARTS = (3, 5)  # steps at which D and the adversarial loss begin
ADAM = {"lr": 2e-3, "betas": (0.5, 0.9), "eps": 1e-4}
OPTIONS = {
    "adaptive_weight": pg.AdaptiveWeightOptions(last_layer="last"),
    "adaptive_weight_output": pg.AdaptiveWeightOptions(),
    "gradient_balancer": pg.GradientBalancerOptions({"adversarial": 4, "l1": 0.5, "square": 2}, 1.5, 0.9),
    "gradient_normalization": pg.GradientNormalizationOptions(),
}
KINDS = {
    "adaptive_weight": pg.AdaptiveWeightBalancer,
    "adaptive_weight_output": pg.AdaptiveWeightBalancer,
    "gradient_balancer": pg.GradientBalancer,
    "gradient_normalization": pg.GradientNormalizationBalancer,
}


class Autoencoder(nn.Module):
    """Its code has a loss of its own, which no balancer weighs; a part of `l1` is a loss of another output."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(SIZE, 7), nn.Tanh()), nn.Linear(7, 9)])
        self.last = nn.Linear(9, SIZE)

    def forward(self, z, condition):
        code = self.blocks[0](condition)
        h = self.blocks[1](code + 0.1 * z).tanh()
        extra = {"code": (code - code.round().detach()).square().mean(1), "hidden": h}
        return pg.GeneratorOutput(self.last(h).sin(), extra)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(2 * SIZE, 10), nn.Linear(10, 1)])

    def forward(self, x, condition):
        return self.blocks[1](self.blocks[0](torch.cat([x, condition], 1)).tanh()).squeeze(1)


def make(side: Side) -> nn.Module:
    torch.manual_seed(3 if side is Side.G else 4)
    return (Autoencoder() if side is Side.G else Critic()).double()


def batch(step: int, first: int = 0, count: int = BATCH) -> Batch:
    rows = Rows(step=step, first=first, count=count, total=BATCH)
    x, c = (rng.normal(9, name, rows, (SIZE,)).double() for name in ("x", "c"))
    return Batch(rows, {"image": x.tanh(), "condition": c})


def l1(outputs, feed):
    """Also a loss of what G returns besides its output: both have the factor."""
    hidden = outputs.extra["hidden"].square().mean(1)
    return (outputs.images - feed.real.image).abs().mean(1) + 0.1 * hidden


TERMS = {
    "l1": (3.0, l1),
    "square": (0.2, lambda outputs, feed: (outputs.images - feed.real.image).square().sum(1)),
    "code": (0.7, lambda outputs, feed: outputs.extra["code"]),
}


def prior() -> pg.Prior:
    return pg.Prior(seed=5, latent=7, dtype=torch.float64, discriminator_arguments=("image", "condition"))


def game(name: str | None, make_strategy=none.Strategy, world=None, parts: int = 1, starts=STARTS) -> pg.GAN:
    players = {}
    for side in Side:
        strategy = make_strategy()
        settings = {key: value for key, value in ADAM.items() if key != "lr"}
        policy = pg.Policy(kind=torch.optim.Adam, lr=ADAM["lr"], arguments=settings, micro_batches=parts)
        players[side] = pg.Player(
            side=side, net=strategy.prepare(lambda side=side: make(side), world), strategy=strategy, policy=policy
        )
    terms = tuple(pg.Term(name=term, function=function, weight=weight) for term, (weight, function) in TERMS.items())
    balancer = None if name is None else KINDS[name](OPTIONS[name])
    loss = pg.Loss(hinge.d_loss, hinge.g_loss)
    when = pg.AdversarialOptions(
        weight=WEIGHT, start_kimg=starts[1] * BATCH / 1000, d_start_kimg=starts[0] * BATCH / 1000
    )
    found = pg.GAN(
        g=players[Side.G],
        d=players[Side.D],
        loss=loss,
        prior=prior(),
        g_penalties=terms,
        balancer=balancer,
        adversarial=when,
    )
    return found


def play(gan: pg.GAN, steps: range, first: int = 0, count: int = BATCH) -> list:
    return [synchronous.step(gan, iter([batch(step, first, count)])) for step in steps]


class PlainLoop:
    """The same training in plain torch: `factors` is taming's, EnCodec's or AFM's code, written from their papers."""

    def __init__(self, name: str, starts=STARTS) -> None:
        self.name = name
        self.starts = starts
        self.g, self.d = make(Side.G), make(Side.D)
        self.adam = {net: torch.optim.Adam(net.parameters(), **ADAM) for net in (self.g, self.d)}
        self.sums, self.counts, self.square = {}, {}, 0.0
        self.factors = []

    def run(self, steps: range) -> None:
        for step in steps:
            real = batch(step)
            c = real.condition
            z, _ = prior().draw("d", real.rows)
            fake = self.g(z, c).images.detach()
            if step >= self.starts[0]:
                loss = (1 - self.d(real.image, c)).relu() + (1 + self.d(fake, c)).relu()
                self.update(self.d, loss.mean())
            self.update_g(real, *prior().draw("g", real.rows))

    def update_g(self, real, z, _) -> None:
        made = self.g(z, real.condition)
        losses = {}
        if real.rows.step >= self.starts[1]:
            losses["adversarial"] = -self.d(made.images, real.condition).mean()
        outputs = pg.Outputs(fake=None, real=None, images=made.images, extra=made.extra)
        feed = pg.TurnInputs(rows=real.rows, seed=0, tensors={}, real=real)
        losses |= {term: (weight * function(outputs, feed)).mean() for term, (weight, function) in TERMS.items()}
        factors = getattr(self, self.name)(made.images, losses)
        self.factors.append(factors)
        weights = {"adversarial": WEIGHT}
        self.update(self.g, sum(factors.get(k, 1.0) * weights.get(k, 1.0) * loss for k, loss in losses.items()))

    def update(self, net, loss) -> None:
        net.zero_grad()
        loss.backward()
        self.adam[net].step()

    def adaptive_weight(self, images, losses, at=None):
        if "adversarial" not in losses:
            return {}
        at = self.g.last.weight if at is None else at
        nll = torch.autograd.grad(losses["l1"] + losses["square"], at, retain_graph=True)[0]
        adversarial = torch.autograd.grad(losses["adversarial"], at, retain_graph=True)[0]
        return {"adversarial": float((nll.norm() / (adversarial.norm() + 1e-4)).clamp(0, 1e4))}

    def adaptive_weight_output(self, images, losses):
        return self.adaptive_weight(images, losses, images)

    def gradient_balancer(self, images, losses):
        options = OPTIONS[self.name]
        found = {}
        weights = {name: weight for name, weight in options.weights.items() if name in losses}
        if "adversarial" in losses:
            weights["adversarial"] *= WEIGHT
        for name, weight in weights.items():
            gradient = torch.autograd.grad(losses[name], images, retain_graph=True)[0]
            self.sums[name] = self.sums.get(name, 0.0) * options.decay + float(gradient.norm(dim=1).mean())
            self.counts[name] = self.counts.get(name, 0.0) * options.decay + 1
            ratio = weight / sum(weights.values())
            found[name] = ratio * options.total_norm / (1e-12 + self.sums[name] / self.counts[name])
        if "adversarial" in found:
            found["adversarial"] /= WEIGHT  # the loss is multiplied by it, too
        return found

    def gradient_normalization(self, images, losses):
        if "adversarial" not in losses:
            return {}
        gradient = torch.autograd.grad(losses["adversarial"], images, retain_graph=True)[0]
        square = float(gradient.square().sum()) * gradient.numel()
        self.square += (square - self.square) * (1 - 0.9)
        return {"adversarial": 1 / (self.square**0.5 + 1e-8)}


def distance(gan: pg.GAN, plain: PlainLoop) -> float:
    """The largest difference of any weight."""
    found = 0.0
    for player, net in ((gan.g, plain.g), (gan.d, plain.d)):
        weights = player.strategy.weights(player.net)
        found = max(found, *(float((weights[name] - value).abs().max()) for name, value in net.state_dict().items()))
    return found
