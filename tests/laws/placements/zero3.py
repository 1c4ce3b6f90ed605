"""FSDP2 per block as a `Strategy`: parameters, gradients and optimiser state are shards."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from paragan.core.types import Can
from paragan.parallel import _loop


class Strategy:
    can = frozenset(Can) - {Can.COUPLED, Can.WHOLE_WEIGHTS}

    def prepare(self, make, mesh):
        net = make()
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    def optimizer(self, policy, net):
        return policy.optimizer(net.parameters())

    def forward_backward(self, turn, nets, parts, scale=None):
        net = nets[turn.side].module
        gradient = partial(self.input_gradient, net, scale=scale)
        factor = dist.get_world_size() * (1 if scale is None else scale)  # FSDP averages, the sum is ours

        @contextmanager
        def around(last):
            net.set_requires_gradient_sync(last)
            yield

        return _loop.forward_backward(turn, nets, parts, gradient, factor, around)

    def input_gradient(self, net, out_B, x, scale=None):
        net.set_reshard_after_backward(False)  # the inner backward must not free what the outer one reads
        try:
            return _loop.input_gradient(out_B, x, scale)
        finally:
            net.set_reshard_after_backward(True)

    def finish(self, net, max_norm, scale=None):
        norm = torch.nn.utils.get_total_norm([p.grad for p in net.parameters()])
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(net.parameters(), max_norm, norm)
        return norm.full_tensor()

    def total(self, values):
        dist.all_reduce(values)
        return values

    def weights(self, net):
        return {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in net.state_dict().items()}

    def load(self, net, weights):
        raise AssertionError("the proof does not load")
