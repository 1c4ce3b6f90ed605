"""Adaptive augmentation where the rows of a batch lie on several ranks."""

from __future__ import annotations

from functools import partial

import torch

from paragan.augment.ada import Augment, Options
from paragan.core.dist import ALONE, World
from paragan.core.types import Side
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import UNEVEN, strategy
from tests.laws.matrix_gan import BATCH, Switches, game, player, stream
from tests.laws.small_gan import distance

STEPS, ON = 8, Switches()
OPTIONS = Options("bgc", target=0.25, p=0.4, kimg=0.5, interval=2)


def ranks_are_the_batch(world: World, kind: str, uneven: bool) -> list:
    """The largest difference of any weight from the plain run, the same of p, and p after each step."""
    row = sum(UNEVEN[world.size][: world.rank]) if uneven else 0
    share = (row, UNEVEN[world.size][world.rank]) if uneven else world.share(BATCH)
    here, plain = _game(world, partial(strategy, kind)), _game(ALONE, none.Strategy)
    told: tuple[list, list] = ([], [])
    for gan, ranks, batches, found in zip(
        (here, plain), (world, ALONE), (stream(ON, *share), stream(ON)), told, strict=True
    ):
        found += [synchronous.step(gan, batches).read(ranks.sum)["d/augment_p"] for _ in range(STEPS)]
    pairs = ((here.g, plain.g), (here.d, plain.d))
    weights = max(distance(a.strategy.weights(a.net), dict(b.net.state_dict())) for a, b in pairs)
    return [weights, distance(here.augment.state, plain.augment.state), *told]


def _game(world: World, made):
    gan = game(ON, *(player(side, ON, made(), world) for side in Side))
    gan.augment, gan.total = Augment(OPTIONS), world.sum
    return gan


def scripted(world: World, script: list[list[float]], images: int) -> list[float]:
    """p after each step. script: the sum of the signs on every rank, by step; each tells its share of their mean."""
    augment, found = Augment(OPTIONS), []
    for sums in script:
        mine = torch.tensor(sums[world.rank] if world.size > 1 else sum(sums)) / images
        augment.observe(mine, images, world.sum)
        found.append(float(augment.state["p"]))
    return found
