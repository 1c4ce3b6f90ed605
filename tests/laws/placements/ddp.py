"""torch's DDP as a `Strategy`: whole networks, a share of the rows each."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paragan.core.types import Can
from paragan.parallel import _loop


class Replicated(nn.Module):
    """Same forward.

    Frozen or without gradients it is the raw module: DDP must not see a forward that has no backward.
    """

    def __init__(self, raw: nn.Module) -> None:
        super().__init__()
        self.raw = raw
        self.wrapped = [DistributedDataParallel(raw, broadcast_buffers=False)]  # in a list: not a second submodule

    def forward(self, *inputs):
        live = torch.is_grad_enabled() and next(self.raw.parameters()).requires_grad
        return (self.wrapped[0] if live else self.raw)(*inputs)


class Strategy:
    can = frozenset(Can) - {Can.COUPLED}

    def prepare(self, make, mesh):
        return Replicated(make())

    def optimizer(self, policy, net):
        return policy.optimizer(net.parameters())

    def forward_backward(self, turn, nets, parts, scale=None):
        wrapped = nets[turn.side].module.wrapped[0]
        gradient = partial(self.input_gradient, wrapped, scale=scale)
        factor = dist.get_world_size() * (1 if scale is None else scale)  # DDP averages, the sum is ours
        return _loop.forward_backward(
            turn, nets, parts, gradient, factor, lambda last: nullcontext() if last else wrapped.no_sync()
        )

    def input_gradient(self, net, out_B, x, scale=None):
        return _loop.input_gradient(out_B, x, scale)

    def finish(self, net, max_norm, scale=None):
        norm = torch.nn.utils.get_total_norm([p.grad for p in net.parameters()])
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(net.parameters(), max_norm, norm)
        return norm

    def total(self, values):
        dist.all_reduce(values)
        return values

    def weights(self, net):
        return dict(net.raw.state_dict())

    def load(self, net, weights):
        net.raw.load_state_dict(weights)
