"""Cases of the strategy pipeline: weights outside of blocks, bytes."""

from typing import Any

import torch

from paragan.core.dist import World
from paragan.game.policy import Policy
from tests.distributed.cases_laws import strategy


class _Partly(torch.nn.Module):
    """A network that uses a weight outside of its blocks for large batches only."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        self.extra = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.blocks(x)
        return self.extra(h).sum() + h.sum() if len(x) > 4 else h.sum()


def partly_reached(world: World, data: str) -> list[Any]:
    """Names and sums of what the optimiser steps by, where rank 0 alone reaches a weight outside of blocks."""
    placed = strategy("pipeline", {"micro_batches": 2, "data": data})
    net = placed.prepare(_Partly, world)
    optimizer = placed.optimizer(Policy(), net)
    placed.training_module(net)(torch.ones(5 if world.rank == 0 else 3, 4)).backward()
    grads = placed.finished_gradients(net)
    stepped = dict(zip(optimizer.param_groups[0]["param_names"], optimizer.param_groups[0]["params"], strict=True))
    return [sorted(grads), float(grads["extra.bias"]), float(stepped["extra.bias"].grad)]


def sent_bytes(world: World, is_input_trained: bool) -> int:
    """Bytes of activations and their gradients that a rank sends in a forward and backward."""
    placed = strategy("pipeline", {"micro_batches": 2})
    blocks = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).double()
    net = torch.nn.Module()
    net.blocks = blocks
    net.forward = lambda x: net.blocks(x)
    net = placed.prepare(lambda: net, world)
    before = world.sent["activations"]
    net(torch.ones(2, 4, dtype=torch.float64, requires_grad=is_input_trained)).sum().backward()
    return world.sent["activations"] - before
