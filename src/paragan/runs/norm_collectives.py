"""Collectives of batch norm that the updates of a game would need on several ranks, counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from paragan.config import RunConfig
from paragan.core.fakes import detached_fakes
from paragan.core.protocols import Turn
from paragan.core.types import Batch
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.layers.batch_norm import BatchNorm

_NORMS = (BatchNorm, nn.modules.batchnorm._BatchNorm)


def count_norms(config: RunConfig, game: GAN, batches: Iterator[Batch]) -> dict[str, tuple[int, int]]:
    """Return collectives of batch norm, and their bytes, in a generation and in both updates."""
    counts = {}
    turn = game.d_turn(next(batches))
    with _counted_norms(game) as seen:
        fakes = fakes_of_turn(turn, game, config.d.micro_batches)
    counts["generate"] = (len(seen), sum(seen))
    with _counted_norms(game) as seen:
        game.d.update(turn.with_fakes(fakes), against=game.g)
    counts["d"] = (len(seen), sum(seen))
    with _counted_norms(game) as seen:
        game.g.update(game.g_turn(next(batches)), against=game.d)
    counts["g"] = (len(seen), sum(seen))
    return counts


def fakes_of_turn(turn: Turn, game: GAN, parts: int) -> tuple[torch.Tensor, ...]:
    """Generate the fakes of D's turn; none if it is not due."""
    return detached_fakes(turn, game.g.network(), parts) if turn.is_due else ()


@contextmanager
def _counted_norms(game: GAN) -> Iterator[list[int]]:
    """Yield the bytes of each all-reduce that batch norms would make on several ranks.

    A training forward has one, and one more in its backward.
    """
    seen: list[int] = []

    def count(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: object) -> None:
        if module.training:
            x = inputs[0]
            num_bytes = (2 * x.shape[1] + 1) * x.element_size()
            seen.extend([num_bytes] * (1 + torch.is_grad_enabled()))

    nets = [player.net for player in (game.g, game.d) if isinstance(player, Player)]
    modules = chain.from_iterable(net.modules() for net in nets)
    hooks = [module.register_forward_hook(count) for module in modules if isinstance(module, _NORMS)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
