"""Starts of D and of the adversarial term, and D's updates by coin and by need, on the rows of this rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import World
from paragan.core.types import Side
from paragan.game.options import AdversarialOptions
from paragan.game.state import restore, state_of
from paragan.game.state_buffers import attach_state
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import distance
from tests.laws.vqgan_gan import BATCH, STEPS, batches, game, plain, player


def plain_loop(world: World, folder: str, strategies: str, parts: int) -> float:
    """The largest difference of a weight from the plain loop; saved and built anew at steps 15 and 25."""
    share = world.share(BATCH)

    def built():
        return game(*(player(side, strategy(strategies), world, parts) for side in Side))

    gan = built()
    for begin, end in ((0, 15), (15, 25), (25, STEPS)):
        if begin:
            found = CheckpointWriter(Path(folder), world=world).newest()
            gan = built()
            for seat in (gan.g, gan.d):
                restore(seat, found.groups[seat.side.value], found.values[seat.side.value])
        stream = batches(*share, start=begin)
        for _ in range(begin, end):
            synchronous.step(gan, stream)
        states = {seat.side.value: state_of(seat) for seat in (gan.g, gan.d)}
        groups = {side: pieces for side, (pieces, _) in states.items()}
        values = {side: counts for side, (_, counts) in states.items()}
        CheckpointWriter(Path(folder), world=world).save(end, groups, values)
    nets = plain()[0]
    return max(distance(s.strategy.weights(s.net), dict(nets[s.side].state_dict())) for s in (gan.g, gan.d))


def by_coin_and_need(world: World, strategies: str) -> list:
    """The batches of D's steps on this rank and in one process, the share of skipped ones, the largest difference."""
    here = _counted(batches(*world.share(BATCH)), lambda side: (strategy(strategies), world), world.sum)
    alone = _counted(batches(), lambda side: (none.Strategy(), None), lambda values: values)
    weights = distance(here[1].strategy.weights(here[1].net), dict(alone[1].net.state_dict()))
    return [here[0], alone[0], here[2], alone[2], weights]


def _counted(stream, placed, total):
    g, d = (player(side, *placed(side)) for side in Side)
    policy = replace(d.policy, lr=0.05, update_probability=2 / 3, max_accuracy=0.7)
    d = type(d)(Side.D, d.net, d.strategy, policy)
    gan = replace(game(g, d), adversarial=AdversarialOptions(), total=total)
    attach_state(gan)
    steps = []
    for step in range(STEPS):
        before = int(d.updates)
        report = synchronous.step(gan, stream).read(total)
        if int(d.updates) > before:
            steps.append(step)
    assert isinstance(d.updates, torch.Tensor)
    return steps, d, round(report.get("d/skipped", d.gate.values()["skipped"].item()), 5)
