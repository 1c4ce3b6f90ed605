"""What a rank holds of a pair of wide networks."""

import itertools
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn

from paragan.core.dist import World
from paragan.core.layout import local_shard
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy


class Wide(nn.Module):
    weight_init = "torch"

    def __init__(self, width: int, inputs: int, layers: int, outputs: tuple[int, ...]) -> None:
        super().__init__()
        widths = [inputs, *[width] * layers]
        self.blocks = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(widths)])
        self.last = nn.Linear(width, outputs[0] if outputs else 1)
        self.outputs = outputs

    def forward(self, x, y=None):
        h = x.flatten(1)
        for block in self.blocks:
            h = block(h).relu()
        h = self.last(h)
        return h.unflatten(1, (1, 8, -1)) if self.outputs else h.squeeze(1)


def held(world: World, name: str, width: int, steps: int = 1) -> dict[str, int]:
    """Bytes of memory behind this rank's weights, optimiser state and average after a step; weights in all."""
    seats, total = [], 0
    for side in Side:
        shape = (width, 64, 5, (64,)) if side is Side.G else (width, 64, 4, ())
        make = NetworkFactory(lambda shape=shape: Wide(*shape), partial(initialise, seed=0, stream=side.value))
        placing = strategy(name)
        net = placing.prepare(make, world)
        total += sum(p.numel() for p in net.parameters())
        ema = Ema(placing.prepare_average(make, world), EmaOptions())
        seats.append(Player(side=side, net=net, strategy=placing, policy=Policy(), ema=ema))
    gan = GAN(g=seats[0], d=seats[1], loss=Loss(hinge.d_loss, hinge.g_loss), prior=Prior(seed=0, latent=64))
    for step in range(steps):
        rows = Rows(step=step, first=world.share(4)[0], count=world.share(4)[1], total=4)
        synchronous.step(gan, iter([Batch(rows, {"image": torch.zeros(rows.count, 1, 8, 8)})]))
    state = [t for seat in seats for entry in seat.optimizer.state.values() for t in entry.values()]
    return {
        "weights": _bytes(local_shard(p) for seat in seats for p in seat.net.parameters()),
        "optimizer": _bytes(t for t in state if isinstance(t, Tensor)),
        "average": _bytes(local_shard(p) for seat in seats for p in seat.ema.net.parameters()),
        "total": total,
    }


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Of the memory behind them, each piece of it once."""
    memory = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(memory.values())
