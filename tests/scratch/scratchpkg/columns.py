"""A strategy outside the package: each rank holds some columns of every matrix and convolution, gathered to be used.

Ranks have different rows of the batch. The gradient of a gathered weight is summed over ranks by the gather itself.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist

from paragan import parallel
from paragan.core.capabilities import Capability
from paragan.core.layout import TensorLayout
from paragan.layers.all_reduce import AllReduceSum, ReduceGroup
from paragan.layers.cross_rank import convert
from paragan.parallel import Placement, Reduction, attach_placement, clip, norm_of, placement_of


def columns(shape, rank: int, size: int) -> TensorLayout:
    """This rank's box of a weight."""
    axis = TensorLayout.rows(shape[1:2], rank, size)
    rest = tuple(shape[2:])
    return TensorLayout(tuple(shape), (0, *axis.offset, *(0 for _ in rest)), (shape[0], *axis.length, *rest))


def gathered(piece: torch.Tensor, box: TensorLayout, group: ReduceGroup) -> torch.Tensor:
    """The whole weight on every rank, with a gradient."""
    start, length = box.offset[1], box.length[1]
    return AllReduceSum.apply(piece.new_zeros(box.shape).slice_scatter(piece, 1, start, start + length), group)


def cut(net, world) -> None:
    """Keep this rank's columns of the weights; while a module runs, its weight is the whole one."""
    boxes, group = {}, ReduceGroup(world.group, "columns", world.count)
    for where, module in net.named_modules():
        for name, weight in module.named_parameters(recurse=False):
            if weight.dim() < 2 or world.size == 1:
                continue
            box = boxes[f"{where}.{name}".lstrip(".")] = columns(weight.shape, world.rank, world.size)
            weight.data = box.cut(weight.data).clone()
            module.register_forward_pre_hook(partial(show_whole, name=name, box=box, group=group))
            module.register_forward_hook(partial(hide_whole, name=name), always_call=True)
    attach_placement(net, Placement(world=world, training_module=net, mesh=boxes))


def show_whole(module, inputs, *, name, box, group) -> None:
    module.__dict__[name] = gathered(module._parameters[name], box, group)


def hide_whole(module, inputs, output, *, name) -> None:
    module.__dict__.pop(name, None)


class Strategy(parallel.Strategy):
    """Tensor columns over ranks."""

    capabilities = frozenset(Capability) - {Capability.WHOLE_WEIGHTS}

    def prepare(self, make, world):
        net = self.apply_memory_options(make())
        convert(net, world, self.memory.norm_ranks)
        cut(net, world)
        return net

    def prepare_average(self, make, world):
        net = make()
        cut(net, world)
        return net

    def reduction(self, turn, net):
        world = placement_of(net).world
        return Reduction(across=None if world.size == 1 else ReduceGroup(world.group, "a penalty", world.count))

    def finish(self, net, max_norm, scale=None):
        here = placement_of(net)
        named = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
        if here.world.size == 1:
            return super().finish(net, max_norm, scale)
        whole = [grad for name, grad in named.items() if name not in here.mesh]
        pieces = [grad for name, grad in named.items() if name in here.mesh]
        for grad in whole:
            dist.all_reduce(grad, group=here.world.group)
        if scale is not None:
            torch._foreach_mul_([*whole, *pieces], 1 / scale)
        squared = norm_of(pieces, here.world.device).square()
        dist.all_reduce(squared, group=here.world.group)
        norm = (squared + norm_of(whole, here.world.device).square()).sqrt()
        clip([*whole, *pieces], max_norm, norm)
        return norm

    def rank_weight(self, net):
        return 1.0 / placement_of(net).world.size

    def layout(self, net):
        return {**super().layout(net), **placement_of(net).mesh}

    def weights(self, net):
        here = placement_of(net)
        group = ReduceGroup(here.world.group, "columns")
        return {
            name: gathered(value.detach(), here.mesh[name], group) if name in here.mesh else value.detach()
            for name, value in net.state_dict().items()
        }
