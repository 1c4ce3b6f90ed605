"""G on one rank, D on the other, in lock-step: the stand-in for a player that sits elsewhere.

Both ranks run the same scheme. Where the scheme updates a player that sits elsewhere, its stand-in serves what that
update needs from here: fakes for D, D's weights and spectral vectors for G. Draws need no traffic: they are functions
of position."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from paragan.core.types import Side, Update
from paragan.game.network import CalledNetwork


class Incoming(nn.Module):
    """A generator whose images come over the wire."""

    def __init__(self, shape, source, dtype):
        super().__init__()
        self.shape, self.source, self.dtype = shape, source, dtype

    def forward(self, z_BZ, y_B=None):
        images = torch.empty(len(z_BZ), *self.shape, dtype=self.dtype)
        dist.broadcast(images, self.source)
        return images


@dataclass
class Elsewhere:
    """A seat whose player is on rank `rank`. `local` is what stands for its network here."""

    side: Side
    rank: int
    local: nn.Module
    updates_per_step: int = 1
    update_probability: float = 1.0
    version: int = 0
    rehearsed: tuple = field(default=())

    def __post_init__(self):
        self.plain_network = CalledNetwork(self.local)

    def network(self):
        if self.side is Side.D:  # a snapshot: bound 0 means the newest, so wait for it
            for tensor in self.local.state_dict().values():
                dist.broadcast(tensor, self.rank)
        return self.plain_network

    def update(self, turn, against):
        here = 1 - self.rank
        if self.side is Side.D:  # D is far away and needs images from here
            with torch.no_grad():
                dist.broadcast(against.network()(*turn.feed.fake_inputs), here)
        else:  # G is far away and needs D from here
            for tensor in against.network().module.state_dict().values():
                dist.broadcast(tensor.detach(), here)
        self.version += 1
        return Update({}, turn.feed.rows, self.version)
