"""Norms whose statistics span ranks, each rank with its rows, against one process with the whole batch."""

import copy
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

from paragan.core.errors import RankError
from paragan.layers.all_reduce import AllReduceSum, ReduceGroup
from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.layers.cross_rank import convert
from paragan.layers.update_once import begin_update, hold_updates

CHANNELS = 3
KINDS = {
    "bare": lambda: BatchNorm(CHANNELS),
    "affine": lambda: AffineBatchNorm(CHANNELS),
    "conditional": lambda: ConditionalBatchNorm(CHANNELS, 2),
    "torch": lambda: nn.BatchNorm2d(CHANNELS),
    "torch, cumulative": lambda: nn.BatchNorm2d(CHANNELS, momentum=None),
    "torch, no affine": lambda: nn.BatchNorm2d(CHANNELS, affine=False),
    "torch, not tracking": lambda: nn.BatchNorm2d(CHANNELS, track_running_stats=False),
    "torch, one-dimensional": lambda: nn.BatchNorm1d(CHANNELS),
    "torch, three-dimensional": lambda: nn.BatchNorm3d(CHANNELS),
}
SHAPES = {"torch, one-dimensional": (5,), "torch, three-dimensional": (2, 3, 2)}


class Net(nn.Module):
    """One norm, given what it takes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = KINDS[kind]()
        self.labelled = kind == "conditional"
        for number, parameter in enumerate(self.parameters()):
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))

    def forward(self, x, y_B):
        return self.layer(x, y_B) if self.labelled else self.layer(x)


def batch(total: int, seed: int, shape=(4, 3)):
    """Images away from zero, labels, and what weighs the outputs."""
    draw = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(total, CHANNELS, *shape, generator=draw, dtype=torch.float64) for _ in range(2))
    return x * 3 + 1, torch.arange(total) % 2, weight


def derivatives(net, x, y_B, weight):
    """Output, first derivatives, and those of an R1-like penalty: of x and of all parameters."""
    x = x.clone().requires_grad_()
    out = net(x, y_B)
    wanted = [x, *net.parameters()]
    first = torch.autograd.grad((out.sin() * weight).sum(), wanted, retain_graph=True)
    (slope,) = torch.autograd.grad((out.sin() * weight).sum(), x, create_graph=True)
    second = torch.autograd.grad((slope.square() * weight.cos()).sum(), wanted)
    return out.detach(), first, second


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item() if a.numel() else 0.0


def running(net) -> dict[str, torch.Tensor]:
    return {name: buffer.double().clone() for name, buffer in net.named_buffers()}


def meet(nets) -> dict[str, torch.Tensor]:
    """Give all of them the mean of their buffers."""
    means = {name: torch.stack([running(net)[name] for net in nets]).mean(0) for name in running(nets[0])}
    for net in nets:
        net.load_state_dict(means, strict=False)
    return means


def compared(world, order, mine, wholes, group, rows) -> dict[str, float]:
    """Derivatives of the input with those of these rows of this group, summed ones of parameters with the sums."""
    found = {f"{order}, of the input": largest(mine[0], wholes[group][0][rows])}
    for i, grad in enumerate(mine[1:], start=1):
        found[f"{order}, of parameter {i}"] = largest(world.sum(grad.clone()), sum(whole[i] for whole in wholes))
    return found | {f"{order} moved": min(t.abs().max().item() for t in wholes[group])}


def against_whole(world, kind, cuts, ranks=None):
    """Largest differences after 3 updates, the last with derivatives; rows as `cuts` says. And the buffers.

    With groups of `ranks`, the whole is that of the group; running statistics are the mean of those of all groups.
    """
    mine, size = Net(kind).double(), ranks or world.size
    group, before = world.rank // size, running(mine)
    wholes = [copy.deepcopy(mine) for _ in range(world.size // size)]
    convert(mine, world, ranks)
    ends = [sum(cuts[:r]) for r in range(world.size + 1)]
    own, theirs = slice(ends[world.rank], ends[world.rank + 1]), [slice(a, b) for a, b in pairwise(ends[::size])]
    for seed in range(3):
        data = batch(ends[-1], seed, SHAPES.get(kind, (4, 3)))
        for net in (mine, *wholes):
            begin_update(net)
        here = derivatives(mine, *(t[own] for t in data))
        there = [derivatives(net, *(t[cut] for t in data)) for net, cut in zip(wholes, theirs, strict=True)]
        means = meet(wholes)
    rows = slice(own.start - theirs[group].start, own.stop - theirs[group].start)
    found = {"output": largest(here[0], there[group][0][rows])}
    for i, order in ((1, "first"), (2, "second")):
        found |= compared(world, order, here[i], [whole[i] for whole in there], group, rows)
    after = running(mine)
    for name, expected in means.items():
        found |= {f"running {name}": largest(after[name], expected)}
        found |= {f"running {name} moved": largest(before[name], expected)}
    fresh = batch(4, 9, SHAPES.get(kind, (4, 3)))[:2]
    found["evaluated"] = largest(mine.eval()(*fresh), wholes[group].eval()(*fresh))
    return found, {name: values.flatten().tolist() for name, values in after.items()}


def all_reduced(world):
    """Derivatives of order 0 to 3 of (sum of x over ranks) ** 4, each taken of the sum over ranks."""
    x = torch.tensor(world.rank + 1.0, dtype=torch.float64, requires_grad=True)
    value = AllReduceSum.apply(x, ReduceGroup(world.group)) ** 4
    orders = [value.item()]
    for _ in range(3):
        (value,) = torch.autograd.grad(value, x, create_graph=True)
        orders.append(value.item())
    return orders


def bytes_sent(world):
    """Of a forward, of its backward, of a forward that leaves no graph, of an evaluation."""
    net = AffineBatchNorm(CHANNELS).double()
    convert(net, world, None)
    x, told = batch(4, world.rank)[0].requires_grad_(), []
    out = net(x)
    told.append(world.sent["norm"])
    out.sin().sum().backward()
    told.append(world.sent["norm"])
    with torch.no_grad():
        net(x)
    told.append(world.sent["norm"])
    net.eval()(x)
    return [*told, world.sent["norm"]]


def followed(world):
    """Running mean after: a forward that is not armed; an armed one where one rank is not finite in channel 0."""
    net = hold_updates(AffineBatchNorm(CHANNELS).double())
    convert(net, world, None)
    x = batch(4, world.rank)[0]
    net(x)
    idle = net.norm.mean.tolist()
    if world.rank == 1:
        x[0, 0] = float("inf")
    begin_update(net)
    net(x)
    return idle, net.norm.mean.tolist(), net.norm.var.tolist()


def far_from_zero(world, low):
    """Rows of mean 10000 (bf16: 50) and deviation 1: largest errors of output, running mean and variance, gradient."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(32, 2, 8, 8, generator=draw, dtype=torch.float64) + (50 if low else 1e4)
    weight = torch.randn(x.shape, generator=draw, dtype=torch.float64)
    x = x.to(torch.bfloat16 if low else torch.float32)
    rows = slice(0, 12) if world.rank == 0 else slice(12, 32)
    net, whole = AffineBatchNorm(2), AffineBatchNorm(2).double()
    convert(net, world, None)
    begin_update(net), begin_update(whole)
    mine, exact = x[rows].clone().requires_grad_(), x.double().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        out = net(mine)
    (grad,) = torch.autograd.grad((out.sin() * weight[rows]).sum(), mine, retain_graph=True)
    (slope,) = torch.autograd.grad((out.sin() * weight[rows]).sum(), mine, create_graph=True)
    expected = whole(exact)
    (expected_grad,) = torch.autograd.grad((expected.sin() * weight).sum(), exact)
    return {
        "dtypes": [str(t.dtype) for t in (out, grad, slope, net.norm.mean)],
        "output": largest(out.double(), expected[rows]),
        "mean": largest(net.norm.mean.double(), whole.norm.mean) / whole.norm.mean.max().item(),
        "var": largest(net.norm.var.double(), whole.norm.var),
        "gradient": largest(grad.double(), expected_grad[rows]),
        "differentiable gradient": largest(slope.double(), expected_grad[rows]),
    }


def skips(world, backward):
    """Rank 1 leaves out the second of two layers, or its backward. What the others are told, after 2 s."""
    patience = dist.new_group(timeout=timedelta(seconds=2))
    net = nn.Sequential(AffineBatchNorm(CHANNELS), nn.Tanh(), AffineBatchNorm(CHANNELS)).double()
    convert(net, replace(world, group=patience), None)
    x = batch(4, world.rank)[0].requires_grad_()
    try:
        if world.rank == 1 and not backward:
            net[0](x)
        else:
            out = net(x)
            if world.rank != 1:
                out.sin().sum().backward()
    except RankError as error:
        return str(error)
    return None


def same_groups(world):
    """Two networks of a run share the groups; a copy talks to the same ranks and works."""
    nets = [nn.Sequential(BatchNorm(CHANNELS)).double() for _ in range(2)]
    for net in nets:
        convert(net, world, 2)
    twin, x = copy.deepcopy(nets[0]), batch(4, world.rank)[0]
    return [
        nets[0][0].reduce_group.group is nets[1][0].reduce_group.group,
        dist.get_process_group_ranks(nets[0][0].reduce_group.group),
        str(nets[0][0].reduce_group.group._get_backend(world.device).options._timeout),
        largest(twin(x), nets[0](x)),
    ]


def layouts(world):
    """The largest difference in any gradient between images in channels-last, or strided, and contiguous memory."""
    torch.manual_seed(world.rank)
    x = torch.randn(3, CHANNELS, 4, 6, dtype=torch.float64)
    net = AffineBatchNorm(CHANNELS).double()
    convert(net, world, None)
    strided = torch.stack([x, x], -1)[..., 0]
    assert not strided.is_contiguous()
    found = []
    for like in (x, x.contiguous(memory_format=torch.channels_last), strided, x.transpose(2, 3).contiguous().mT):
        leaf = like.detach().requires_grad_()
        weight = torch.arange(x.numel(), dtype=x.dtype).view(x.shape)
        found.append(torch.autograd.grad((net(leaf).sin() * weight).sum(), [leaf, net.gain, net.bias]))
    return max(float((a - b).abs().max()) for other in found[1:] for a, b in zip(other, found[0], strict=True))
