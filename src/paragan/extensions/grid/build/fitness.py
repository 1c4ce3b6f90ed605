"""Fitness of the players of a grid, with equal latents for all and each cell's real images; and their opponents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from torch import nn

from paragan import build
from paragan.config import choose
from paragan.config.grid_options import GridOptions
from paragan.core import rng
from paragan.core.source import Source
from paragan.core.types import Batch, Rows, Side
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.data_shares import DataShares
from paragan.extensions.grid.fitness import FitnessEvaluator
from paragan.extensions.grid.genome import EvalNetwork, Genome
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.loading.loader import normalise_images
from paragan.loading.order import Order


def fitness_evaluator(
    options: GridOptions,
    train: Source,
    data_shares: DataShares,
    prior: Prior,
    eval_networks: Mapping[Side, EvalNetwork],
    time: int,
) -> FitnessEvaluator:
    """Return the fitness evaluator of a generation: equal latents, each cell's real images."""
    count = options.fitness.num_images
    z, y = prior.draw("fitness", Rows(step=time, first=0, count=count, total=count))

    @cache
    def real(number: int | None) -> Batch:
        source = train if number is None else data_shares.of(number)
        order = Order(len(source), rng.key(prior.seed, "fitness"))
        fetched = source.fetch(order.at(np.arange(time * count, (time + 1) * count)))
        tensors = {name: tensor.to(prior.device) for name, tensor in fetched.items()}
        images = normalise_images(tensors, source)
        return prior.real_batch(Batch(Rows(step=time, first=0, count=count, total=count), images))

    def real_of_cell(number: int) -> Batch:
        return real(None if data_shares.of(number) is train else number)

    loss = build.adversarial(options.fitness.loss or choose("losses", "nonsaturating"))
    return FitnessEvaluator(eval_networks=eval_networks, loss=loss, z_BZ=z, y_B=y, reals=real_of_cell)


def opponent_network(
    makers: Mapping[Side, Callable[[], nn.Module]], like: Cell, side: Side, genome: Genome
) -> CalledNetwork:
    """Return a new network, which calls may change, with the weights of a genome."""
    net = makers[side]().requires_grad_(False)
    net.load_state_dict(genome.network_state())
    return CalledNetwork(module=net, calling=like.players[side].calling)
