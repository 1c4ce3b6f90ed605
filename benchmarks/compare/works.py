"""What is compared: networks, batch and size of one step, and paragan's side of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import nn

import paragan
from benchmarks import step
from benchmarks.cellular_comparison import grid
from paragan import build
from paragan.core.types import Batch
from paragan.game.gan import GAN
from paragan.runs.shape_only_data import shape_only_data

ROOT = Path(__file__).resolve().parents[2]
BATCHES = 20  # of an iteration of the cell


@dataclass(frozen=True)
class Prepared:
    """One side of a comparison: a step, the networks that it trains, and the version of its code."""

    step: Callable[[], object]
    networks: tuple[nn.Module, nn.Module]
    version: str


class Unlabelled(step.Case):
    """A case without labels."""

    def game(self, *words: str) -> GAN:
        data = shape_only_data((3, self.side, self.side), 0, None)
        return build.gan(self.config(*words), data, torch.device("cpu"))

    def real(self) -> Batch:
        batch = step.Case("", (), 1, self.batch, self.side).real()
        return Batch(batch.rows, {"image": batch.image})


_UNLABELLED = "model={name: sngan, conditional: false}"
_BROCK = "model={name: biggan, flavour: brock, shared: 0, latent: 128}"
_CASES: dict[str, step.Case] = {
    "dcgan": Unlabelled("sngan-cifar10", ("model=dcgan", "loss=nonsaturating"), 64, 32, 32, 0),
    "sngan": step.Case("sngan-cifar10", (), 128, 4),
    "sngan-unlabelled": Unlabelled("sngan-cifar10", (_UNLABELLED,), 128, 16, 32, 0),
    "biggan": step.Case("sngan-cifar10", ("model=biggan",), 96, 4),
    "biggan-brock": step.Case("sngan-cifar10", (_BROCK,), 64, 4),
    "pix2pix": step.CASES["pix2pix"],
}
WORKS = (*_CASES, "cell")


def case(work: str) -> step.Case:
    """Return the networks, batch and size of a step of images."""
    return _CASES[work]


def describe(work: str) -> str:
    """Return what one step of a work is, for the table."""
    if work == "cell":
        return f"one generation of one cell, MNIST, {BATCHES} batches of 100"
    of = case(work)
    return f"batch {of.batch}, {of.side} px"


def variants(work: str) -> dict[str, tuple[str, ...]]:
    """Settings of paragan by column of the table. equal: float32, and the peer's order of operations."""
    if work == "cell":
        return {"equal": ("g.precision=fp32", "d.precision=fp32"), "defaults": ()}
    order = step.APART if case(work).classes or isinstance(case(work), Unlabelled) else step.SHARED
    return {"equal": (*step.FP32, order), "defaults": () if order == step.APART else (order,)}


def ours(work: str, words: tuple[str, ...]) -> Prepared:
    """Return paragan's side."""
    if work == "cell":
        population = grid("1x1", BATCHES, (f"data.path={data()}", "grid.mixture.num_images=0", *words))
        gan: Any = population.cells[0].gan
        return Prepared(population.evolve, (gan.g.net, gan.d.net), paragan.__version__)
    of = case(work)
    gan = of.game(*words)
    take = partial(build.scheme(of.config(*words)).step, gan, repeat(of.real()))
    return Prepared(take, (gan.g.net, gan.d.net), paragan.__version__)


def data() -> Path:
    """Return the folder of MNIST's idx files, of which a cell learns."""
    return Path(os.environ.get("PARAGAN_DATA", ROOT.parent / "shared" / "data")) / "mnist"
