"""One update of D and of G of dense networks, those of vanilla-mnist: the library's step against a plain torch loop.

    python -m benchmarks.step_dense [--pairs 15] [--batch 64]

CPU seconds at one thread, pair by pair.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import repeat

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.paired_timing import compare, keep
from paragan import build
from paragan.config import read_recipe
from paragan.core import rng
from paragan.core.types import Batch, Rows
from paragan.runs.shape_only_data import shape_only_data
from paragan.schemes import synchronous

SHAPE, LATENT = (1, 28, 28), 100


def networks() -> tuple[nn.Module, nn.Module]:
    """The plain G and D, in the order of our weights."""
    leaky = partial(nn.LeakyReLU, 0.2)
    g = nn.Sequential(nn.Linear(LATENT, 256), leaky(), nn.Linear(256, 512), leaky(), nn.Linear(512, 1024), leaky())
    d = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), leaky(), nn.Linear(512, 256), leaky(), nn.Linear(256, 1))
    return nn.Sequential(*g, nn.Linear(1024, 784), nn.Tanh(), nn.Unflatten(1, SHAPE)), d


def real(batch: int) -> Batch:
    rows = Rows(step=0, first=0, count=batch, total=batch)
    return Batch(rows, {"image": rng.uniform(1, "x", rows, SHAPE) * 2 - 1})


def plain(batch: int) -> Callable[[], None]:
    """A step as users of torch write it."""
    (g, d), x = networks(), real(batch).image
    adam_g, adam_d = (torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999)) for net in (g, d))
    ones, zeros = torch.ones(batch, 1), torch.zeros(batch, 1)
    bce = F.binary_cross_entropy_with_logits

    def step() -> None:
        with torch.no_grad():
            fake = g(torch.randn(batch, LATENT))
        adam_d.zero_grad()
        (bce(d(x), ones) + bce(d(fake), zeros)).backward()
        adam_d.step()

        d.requires_grad_(False)
        adam_g.zero_grad()
        bce(d(g(torch.randn(batch, LATENT))), ones).backward()
        adam_g.step()
        d.requires_grad_(True)

    return step


def ours(batch: int) -> Callable[[], object]:
    """The library's."""
    words = ["data.path=nowhere", f"train.batch={batch}"]
    game = build.gan(read_recipe("vanilla-mnist", words), shape_only_data(SHAPE, 0, None), torch.device("cpu"))
    return partial(synchronous.step, game, repeat(real(batch)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = compare(plain(arguments.batch), ours(arguments.batch), arguments.pairs, warm_up=4)
    description = f"networks of vanilla-mnist, batch {arguments.batch}, one D and one G update"
    keep("step-dense", {"plain loop / library": found}, description)


if __name__ == "__main__":
    main()
