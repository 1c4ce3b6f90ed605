"""Whole training in plain torch: losses and penalties as in the papers, torch's Adam and clipping, an average."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.types import Side
from tests.numerics.games import ADAM, BATCH, HALF_LIFE, MAX_NORM, RAMP, SEED, Game, batches, factory, prior


def _clip(x: Tensor) -> Tensor:
    return x.clamp(min=0)


# D's and G's loss per sample, from logits of real and fake images; with probabilities where the papers have them
LOSSES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    # Goodfellow et al. 2014: equation 1, and the end of section 3
    "minimax": (lambda r, f: -r.sigmoid().log() - (1 - f.sigmoid()).log(), lambda r, f: (1 - f.sigmoid()).log()),
    "nonsaturating": (lambda r, f: -r.sigmoid().log() - (1 - f.sigmoid()).log(), lambda r, f: -f.sigmoid().log()),
    # Mao et al. 2017, equation 9
    "least_squares": (lambda r, f: ((r - 1) ** 2 + f**2) / 2, lambda r, f: (f - 1) ** 2 / 2),
    # Miyato et al. 2018, equations 16 and 17; Défossez et al. 2022, section 3.4
    "hinge": (lambda r, f: _clip(1 - r) + _clip(1 + f), lambda r, f: -f),
    "hinge_both": (lambda r, f: _clip(1 - r) + _clip(1 + f), lambda r, f: _clip(1 - f)),
    # Arjovsky et al. 2017, equation 2
    "wasserstein": (lambda r, f: f - r, lambda r, f: -f),
    # Jolicoeur-Martineau 2019, sections 4.1 and 4.2
    "relativistic": (lambda r, f: -(r - f).sigmoid().log(), lambda r, f: -(f - r).sigmoid().log()),
    "relativistic_average": (
        lambda r, f: -(r - f.mean()).sigmoid().log() - (1 - (f - r.mean()).sigmoid()).log(),
        lambda r, f: -(f - r.mean()).sigmoid().log() - (1 - (r - f.mean()).sigmoid()).log(),
    ),
}


class Loop:
    """The weights of both networks, and of G's average, after some steps; `losses` of each step."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.nets = {side: factory(side, game)() for side in Side}
        self.adam = {side: torch.optim.Adam(net.parameters(), **ADAM) for side, net in self.nets.items()}
        self.average = copy.deepcopy(self.nets[Side.G])
        self.means: dict[str, float] = {}  # of LeCam
        self.d_updates = 0
        self.losses: list[dict[str, float]] = []

    def run(self, steps: int) -> None:
        g, d = (self.nets[side] for side in Side)
        d_loss, g_loss = LOSSES[self.game.loss]
        stream = batches()
        for step in range(steps):
            for _ in range(self.game.k):
                real = next(stream)
                z, y = prior().draw("d", real.rows)
                fake = g(z, y).detach()
                x, c = real.image, real.label
                of_d = d_loss(d(x, c).logits_B, d(fake, y).logits_B).mean()
                told = {"d/loss/adversarial": float(of_d.detach())}
                for name, options in self.game.d.items():
                    interval = options.get("interval", 1)
                    if self.d_updates % interval == 0:
                        term = options["weight"] * getattr(self, name)(d, real, fake, y, options).mean()
                        told[f"d/loss/{name}"] = interval * float(term.detach())
                        of_d = of_d + interval * term
                self.d_updates += 1
                self._step(Side.D, of_d)
            z, y = prior().draw("g", real.rows)
            of_g = g_loss(d(x, c).logits_B, d(g(z, y), y).logits_B).mean()
            self.losses.append({**told, "g/loss/adversarial": float(of_g.detach())})
            self._step(Side.G, of_g)
            half_life = min(HALF_LIFE, RAMP * step * BATCH)  # Karras et al. 2020 (ADA), appendix
            beta = 0.5 ** (BATCH / half_life) if half_life else 0.0
            for mean, weight in zip(self.average.parameters(), g.parameters(), strict=True):
                mean.data = beta * mean.data + (1 - beta) * weight.data

    def _step(self, side: Side, loss: Tensor) -> None:
        net = self.nets[side]
        for other in self.nets.values():
            other.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), MAX_NORM)
        self.adam[side].step()

    @staticmethod
    def _slope(d: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(d(x, y).logits_B.sum(), x, create_graph=True)
        return (slope**2).sum((1, 2, 3))

    def r1(self, d: nn.Module, real: Any, fake: Tensor, y: Tensor, options: dict[str, Any]) -> Tensor:
        """Mescheder et al. 2018, equation 9."""
        return self._slope(d, real.image, real.label) / 2

    def r2(self, d: nn.Module, real: Any, fake: Tensor, y: Tensor, options: dict[str, Any]) -> Tensor:
        """Mescheder et al. 2018, equation 10."""
        return self._slope(d, fake, y) / 2

    def gradient_penalty(self, d: nn.Module, real: Any, fake: Tensor, y: Tensor, options: dict[str, Any]) -> Tensor:
        """Gulrajani et al. 2017, equation 3."""
        e = rng.uniform(SEED, "gradient_penalty", real.rows, (1, 1, 1)).double()
        return (self._slope(d, e * real.image + (1 - e) * fake, real.label).sqrt() - 1) ** 2

    def lecam(self, d: nn.Module, real: Any, fake: Tensor, y: Tensor, options: dict[str, Any]) -> Tensor:
        """Tseng et al. 2021, equation 5; the first means are plain ones."""
        logits = {"real": d(real.image, real.label).logits_B, "fake": d(fake, y).logits_B}
        share = max(1 - options["decay"], 1 / (self.d_updates + 1))
        for name, value in logits.items():
            before = self.means.get(name, 0.0)
            self.means[name] = before + share * (float(value.detach().mean()) - before)
        is_due = self.d_updates >= options.get("warmup", 0)
        return is_due * ((logits["real"] - self.means["fake"]) ** 2 + (logits["fake"] - self.means["real"]) ** 2)
