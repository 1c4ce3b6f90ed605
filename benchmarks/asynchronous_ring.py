"""Eight Gaussians on a circle, two small networks, and how well the one is met by the other.

The ring is that of Metz et al. 2017 (section 3.1), radius 1: a sample is a point, which the game takes as it takes an
image. A point counts for the nearest mode if it is within four standard deviations of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.asynchronous_rows import Row
from paragan.core import rng
from paragan.core.metric import SampleFeatures
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.sampling import generate_images, sampling_network
from paragan.layers.init import initialise
from paragan.losses import nonsaturating
from paragan.metrics import fd
from paragan.optim import adabelief
from paragan.parallel import none
from paragan.penalties import r1
from paragan.schemes import asynchronous

MODES, SPREAD, LATENT, WIDTH, LR = 8, 0.02, 8, 64, 1e-3
_SCORED, _DIRECTIONS, _NEAR = 2000, 64, 4 * SPREAD


class Points(nn.Module):
    """Three layers; G and D differ in what goes in and comes out."""

    weight_init = "orthogonal"

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.latent = inputs
        self.layers = nn.Sequential(
            nn.Linear(inputs, WIDTH),
            nn.LeakyReLU(0.2),
            nn.Linear(WIDTH, WIDTH),
            nn.LeakyReLU(0.2),
            nn.Linear(WIDTH, outputs),
        )

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        found = self.layers(x)
        return found.squeeze(1) if found.shape[1] == 1 else found


def points(seed: int, stream: str, rows: Rows) -> Tensor:
    """Of the ring, (B, 2)."""
    angles = rng.integers(seed, f"{stream}/mode", rows, MODES) * (2 * math.pi / MODES)
    return _at(angles) + SPREAD * rng.normal(seed, f"{stream}/place", rows, (2,))


def batches(seed: int, batch: int) -> Iterator[Batch]:
    """Endless."""
    step = 0
    while True:
        rows = Rows(step=step, first=0, count=batch, total=batch)
        yield Batch(rows, {"image": points(seed, "real", rows)})
        step += 1


def game(row: Row, seed: int) -> GAN:
    """Both players at step 0."""
    g, d = [_player(side, row, seed) for side in (Side.G, Side.D)]
    penalties = (r1.Penalty(r1.Options(weight=0.1)),)
    loss = Loss(nonsaturating.d_loss, nonsaturating.g_loss)
    return GAN(g=g, d=d, loss=loss, prior=Prior(seed=seed, latent=LATENT), d_penalties=penalties)


def scheme(row: Row, batch: int) -> asynchronous.Scheme:
    """The row's asynchronous scheme."""
    given: dict[str, Any] = dict(row.scheme or {})
    given["reuse"] = given.get("reuse") != "false"
    g_batch = round(batch * row.g) if row.g != row.d else None
    return asynchronous.Scheme(asynchronous.Options(**given, g_batch=g_batch))


def score(player: Player, prior: Prior) -> dict[str, float]:
    """Of 2,000 points of the sampling generator."""
    rows = Rows(step=0, first=0, count=_SCORED, total=_SCORED)
    z_BZ, _ = prior.draw("score", rows)
    return measured(generate_images(sampling_network(player), z_BZ, None), points(prior.seed, "score", rows))


def measured(made: Tensor, real: Tensor) -> dict[str, float]:
    """modes: with at least a fifth of their share of good points; good: share of points near a mode; fd of the points
    themselves; sliced distance: Wasserstein-1 along a line, the mean over 64 directions.
    """
    centres = _at(torch.arange(MODES) * (2 * math.pi / MODES))
    away, nearest = torch.cdist(made, centres).min(1)
    counts = torch.bincount(nearest[away < _NEAR], minlength=MODES)
    turns = _at(torch.arange(_DIRECTIONS) * (math.pi / _DIRECTIONS)).T
    apart = (made @ turns).sort(0).values - (real @ turns).sort(0).values
    return {
        "sliced distance": float(apart.abs().mean()),
        "fd": fd.Metric.from_reference(SampleFeatures(features_BF=real))
        .update(SampleFeatures(features_BF=made))
        .compute(),
        "modes": float((counts >= len(made) / MODES / 5).sum()),
        "good": float((away < _NEAR).float().mean()),
    }


def _at(angles: Tensor) -> Tensor:
    return torch.stack([angles.cos(), angles.sin()], -1)


def _player(side: Side, row: Row, seed: int) -> Player:
    strategy = none.Strategy()

    def make() -> nn.Module:
        net = Points(LATENT, 2) if side is Side.G else Points(2, 1)
        initialise(net, seed, side.value)
        return net

    ema = Ema(strategy.prepare_average(make, None), EmaOptions(half_life_kimg=5.0)) if side is Side.G else None
    policy = _policy((row.g_optimizer if side is Side.G else row.d_optimizer) or {})
    return Player(side=side, net=strategy.prepare(make, None), strategy=strategy, policy=policy, ema=ema)


def _policy(given: Mapping[str, Any]) -> Policy:
    kind = adabelief.Optimizer if given.get("name") == "adabelief" else torch.optim.Adam
    arguments = {"betas": (0.0, 0.99)} | {key: given[key] for key in ("betas", "eps") if key in given}
    return Policy(kind=kind, lr=given.get("lr", LR), arguments=arguments)
