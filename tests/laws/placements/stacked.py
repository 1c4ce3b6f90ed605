"""N cells of one architecture as one batched program: every parameter has a leading cell axis.

Row b of the feed holds the b-th sample of every cell side by side (so joining real and fake rows, or cutting parts,
keeps the cells apart), `rows.total` stays one cell's; only the network call sees the cell axis. A sum of independent
losses gives every cell its own gradient, and an element-wise optimiser its own step."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.func import functional_call, stack_module_state

from paragan.core.outputs import DiscriminatorOutput
from paragan.core.types import Can
from paragan.parallel import _forward_backward, none
from paragan.parallel._input_gradient import input_gradient


class Stack(nn.Module):
    """Same forward over (B * cells) rows, the cell changing fastest."""

    def __init__(self, cells: list[nn.Module]) -> None:
        super().__init__()
        parameters, buffers = stack_module_state(cells)
        self.cells = len(cells)
        self.template = [cells[0]]  # in a list: its own weights are not ours
        self.names = list(parameters), list(buffers)
        for i, value in enumerate(parameters.values()):
            self.register_parameter(f"p{i}", nn.Parameter(value.detach().clone()))
        for i, value in enumerate(buffers.values()):
            self.register_buffer(f"b{i}", value.detach().clone())

    def modules(self):  # arming reaches the template, whose layers run
        yield from super().modules()
        yield from self.template[0].modules()

    def stacked(self):
        p, b = self.names
        return (
            {n: getattr(self, f"p{i}") for i, n in enumerate(p)},
            {n: getattr(self, f"b{i}") for i, n in enumerate(b)},
        )

    def forward(self, *inputs):
        def one(parameters, buffers, *given):
            out = functional_call(self.template[0], (parameters, buffers), given)
            return (out.logits_B, out.features) if isinstance(out, DiscriminatorOutput) else out

        cut = [None if x is None else x.unflatten(0, (-1, self.cells)) for x in inputs]
        axes = [None if x is None else 1 for x in inputs]
        out = torch.vmap(one, in_dims=(0, 0, *axes), out_dims=1)(*self.stacked(), *cut)
        return tuple(o.flatten(0, 1) for o in out) if isinstance(out, tuple) else out.flatten(0, 1)


class Strategy(none.Strategy):
    can = frozenset({Can.DOUBLE_BACKWARD})

    def prepare(self, make, mesh):
        return Stack([make(cell) for cell in range(mesh)])

    def prepare_average(self, make, mesh):
        return self.prepare(make, mesh)

    def optimizer(self, policy, net):
        return policy.optimizer(net.named_parameters())

    def forward_backward(self, turn, nets, parts, scale=None):
        net = nets[turn.side].module
        gradient = partial(self.input_gradient, net, scale=scale)
        return _forward_backward.forward_backward(turn, nets, parts, gradient, scale)

    def input_gradient(self, net, out_B, x, scale=None):
        return input_gradient(out_B, x, scale)

    def finish(self, net, max_norm, scale=None):
        grads = [p.grad for p in net.parameters()]
        norm_N = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()
        if max_norm is not None:
            for grad in grads:
                grad.mul_((max_norm / (norm_N + 1e-6)).clamp(max=1.0).view(-1, *[1] * (grad.dim() - 1)))
        return norm_N.max()

    def weights(self, net):
        parameters, buffers = net.stacked()
        return {name: value.detach() for name, value in {**parameters, **buffers}.items()}

    def load(self, net, weights):
        raise AssertionError("the proof does not load")
