"""An individual of the upstream-style cellular baseline: a network with its optimiser's state, and how it travels."""

from __future__ import annotations

import base64
import copy
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

BETAS = (0.5, 0.999)
# Of probabilities, not logits. "heuristic" is missing because upstream's turns into "bce" at D's first evaluation.
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"bce": nn.BCELoss(), "mse": nn.MSELoss()}


@dataclass
class Individual:
    """optimizer: Adam's state dict, None before the first step. lr: what mutates, whatever the optimiser makes of it.

    loss: a key of `LOSSES`, for training and fitness. fitness: its loss against the others, lower is better.
    """

    net: nn.Module
    lr: float
    loss: str
    source: int  # the cell
    iteration: int = 0
    optimizer: dict[str, Any] | None = None
    fitness: float = math.inf


def generator(latent: int, hidden: int, pixels: int) -> nn.Module:
    """(B, latent) to (B, pixels) in [-1, 1]."""
    return nn.Sequential(*_hidden(latent, hidden), nn.Linear(hidden, pixels), nn.Tanh())


def discriminator(pixels: int, hidden: int) -> nn.Module:
    """(B, pixels) to (B, 1), the probability of being real."""
    return nn.Sequential(*_hidden(pixels, hidden), nn.Linear(hidden, 1), nn.Sigmoid())


def _hidden(inputs: int, hidden: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2)


def g_loss(of: Individual, g: nn.Module, d: nn.Module, z_BZ: Tensor) -> Tensor:
    """By the loss that `of` carries: how far D is from taking g's images for real."""
    verdict_B1 = d(g(z_BZ))
    return LOSSES[of.loss](verdict_B1, torch.ones_like(verdict_B1))


def d_loss(of: Individual, d: nn.Module, g: nn.Module, real_BP: Tensor, z_BZ: Tensor) -> Tensor:
    """By the loss that `of` carries. The fakes are not detached: a backward pass goes through g, too."""
    loss, on_real_B1 = LOSSES[of.loss], d(real_BP)
    on_fake_B1 = d(g(z_BZ))
    return loss(on_real_B1, torch.ones_like(on_real_B1)) + loss(on_fake_B1, torch.zeros_like(on_fake_B1))


def update(individual: Individual, loss: Callable[[], Tensor]) -> None:
    """One step of a new Adam with a copy of the state. Loading it puts the old rate back: mutation has no effect."""
    optimizer = torch.optim.Adam(individual.net.parameters(), individual.lr, BETAS)
    if individual.optimizer is not None:
        optimizer.load_state_dict(copy.deepcopy(individual.optimizer))
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
    individual.optimizer = optimizer.state_dict()


def encode(individual: Individual) -> str:
    """The whole individual as JSON with base64 of what `torch.save` writes."""
    file = io.BytesIO()
    torch.save([individual.net.state_dict(), individual.optimizer], file)
    facts = {name: getattr(individual, name) for name in ("lr", "loss", "source", "iteration")}
    return json.dumps({**facts, "tensors": base64.b64encode(file.getbuffer()).decode("ascii")})


def decode(text: str, make: Callable[[], nn.Module]) -> Individual:
    """Into a new network by `make`. Loading safely is slower than upstream's way, by 0.4 % of an iteration at 3x3."""
    facts = json.loads(text)
    file = io.BytesIO(base64.b64decode(facts.pop("tensors")))
    weights, optimizer = torch.load(file, weights_only=True)
    net = make()
    net.load_state_dict(weights)
    return Individual(net, optimizer=optimizer, **facts)
