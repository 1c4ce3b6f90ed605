"""Layers split over ranks, each rank with its rows, against one process with the whole batch."""

import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from paragan.core.dist import World
from paragan.core.errors import DataError, RankError
from paragan.core.layout import copy_full, gather_full, layout_of
from paragan.core.network_factory import NetworkFactory
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.layers.cross_rank import convert
from paragan.layers.init import initialise
from paragan.layers.resample import DownConv2d, UpConv2d
from paragan.layers.spectral_norm import spectral_norm
from paragan.layers.split import Split, class_tables, split_layers
from paragan.layers.update_once import begin_update, hold_updates
from paragan.models import sngan
from paragan.models.r3gan import FixupEmbedding, FixupLinear
from paragan.parallel.base.blocks import checkpointed
from paragan.parallel.base.fully_shard import build_sharded
from tests.distributed.cases_norms import derivatives, largest

INPUTS, CLASSES = 6, 10


class Vectors(nn.Module):
    """Linear layers, and a projection of the label, as in D."""

    def __init__(self, wrap) -> None:
        super().__init__()
        self.first = wrap(nn.Linear(INPUTS, 8))
        self.whole = wrap(nn.Linear(8, 7))
        self.last = wrap(FixupLinear(7, 7))
        self.embed = wrap(FixupEmbedding(CLASSES, 7))

    def forward(self, x, y_B):
        h = self.last(F.softplus(self.whole(F.softplus(self.first(x[:, :, 0, 0])))))
        return (h.sum(1) + (self.embed(y_B) * h).sum(1)).view(-1, 1, 1, 1)


class Maps(nn.Module):
    """Convolutions with a norm of tables, as in G."""

    def __init__(self, wrap) -> None:
        super().__init__()
        self.first = wrap(nn.Conv2d(INPUTS, 4, 3, padding=1))
        self.up = wrap(UpConv2d(4, 7))
        self.norm = ConditionalBatchNorm(7, CLASSES)
        self.down = wrap(DownConv2d(7, 4))

    def forward(self, x, y_B):
        h = F.softplus(self.norm(self.up(F.softplus(self.first(x))), y_B))
        return self.down(h).square().mean((1, 2, 3), keepdim=True)


NETS = {"vectors": Vectors, "maps": Maps}
SPLITS = {
    "vectors": {"first": Split.OUTPUTS, "last": Split.OUTPUTS, "embed": Split.ROWS},
    "maps": {"first": Split.OUTPUTS, "up": Split.OUTPUTS, "norm": Split.ROWS, "down": Split.OUTPUTS},
}


def built(kind, normed):
    net = NETS[kind](spectral_norm if normed else lambda layer: layer)
    net.weight_init = "torch"
    initialise(net, 3, "d")
    hold_updates(net)
    for name, parameter in net.named_parameters():
        if name in ("norm.gain", "norm.bias"):
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(5))
    return net.double()


def group_of(world, size):
    """The ranks that share layers, `size` consecutive ones, as a world."""
    if size == world.size:
        return world
    first = world.rank // size * size
    groups = [dist.new_group(list(range(start, start + size))) for start in range(0, world.size, size)]
    mine = groups[first // size]
    return World(rank=world.rank - first, size=size, group=mine, control=mine)


def batch(total, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(total, INPUTS, 4, 4, generator=draw, dtype=torch.float64)
    weight = torch.randn(total, 1, 1, 1, generator=draw, dtype=torch.float64)
    return x, torch.arange(total) * 7 % CLASSES, weight


def summed(world, gradient, size):
    """Over all ranks: each rank of a group has the sum over the group of a split weight's."""
    value = gather_full(gradient).clone()
    return world.sum(value) / (size if not layout_of(gradient).is_whole else 1)


def compared(world, mine, whole, own, size):
    """Largest differences of output, and of first and second derivatives, of the input and of parameters."""
    found = {"output": largest(mine[0], whole[0][own])}
    for order in (1, 2):
        assert max(expected.abs().max() for expected in whole[order]) > 1e-3
        found[f"{order}, of the input"] = largest(mine[order][0], whole[order][0][own])
        for number, expected in enumerate(whole[order][1:]):
            found[f"{order}, of parameter {number}"] = largest(summed(world, mine[order][1 + number], size), expected)
    return found


def step(mine, whole, gradients):
    """The same step of gradient descent for both."""
    with torch.no_grad():
        for parameter, gradient in zip(whole.parameters(), gradients, strict=True):
            parameter -= 0.01 * gradient
        for parameter, updated in zip(mine.parameters(), whole.parameters(), strict=True):
            copy_full(parameter, updated)


def against_whole(world, kind, cuts, normed=True, size=None, recompute=False):
    """Largest differences over 3 updates, of which the second leaves spectral norm; then its vectors."""
    size = size or world.size
    whole = built(kind, normed)
    mine = copy.deepcopy(whole)
    convert(mine, world, None)
    split_layers(mine, group_of(world, size), SPLITS[kind])
    if recompute:
        for layer in (mine.first, mine.last, mine.embed):
            layer.forward = checkpointed(layer.forward)
    own = slice(sum(cuts[: world.rank]), sum(cuts[: world.rank + 1]))
    found = {}
    for update in range(3):
        data = batch(sum(cuts), update)
        if update != 1:
            begin_update(mine)
            begin_update(whole)
        here = derivatives(mine, *(t[own] for t in data))
        there = derivatives(whole, *data)
        found |= {f"update {update}: {k}": v for k, v in compared(world, here, there, own, size).items()}
        step(mine, whole, there[1][1:])
    vectors = {name: value for name, value in mine.named_buffers() if name.endswith((".u", ".v"))}
    found |= {f"vector {name}": largest(value, whole.get_buffer(name)) for name, value in vectors.items()}
    return found, {name: value.tolist() for name, value in vectors.items()}


def built_in_shards(world):
    """D of a model, built on the meta device and in shards, against D built whole; elements of its table here."""
    options = sngan.Options(width=8)
    make = NetworkFactory(
        lambda: sngan.Discriminator(options, (3, 16, 16), 11), partial(initialise, seed=0, stream="d")
    )
    whole = make()
    splits = class_tables(whole, 11)
    mine = build_sharded(make, lambda net: split_layers(net, world, splits))
    state, expected = mine.state_dict(), whole.state_dict()
    differences = {name: largest(gather_full(state[name]), value) for name, value in expected.items()}
    twin = copy.deepcopy(mine)
    x, y_B, _ = batch(2, world.rank)
    x = x[:, :3].float().repeat(1, 1, 4, 4)
    differences["copy"] = largest(twin(x, y_B).logits_B, mine(x, y_B).logits_B)
    table = mine.get_parameter(next(iter(splits)) + ".parametrizations.weight.original")
    return list(state) == list(expected), list(splits), differences, table.to_local().numel()


def bytes_of(world):
    """Bytes that an exchange of activations sends: in the forward, then in a backward to all inputs."""
    net = split_layers(nn.Sequential(nn.Linear(6, 8)).double(), world, {"0": Split.OUTPUTS})
    x = batch(3, world.rank)[0][:, :, 0, 0].requires_grad_()
    out = net(x)
    forward = world.sent["activations"]
    out.sum().backward()
    return forward, world.sent["activations"] - forward


def invalid_label(world, label):
    """What each rank raises if a label of rank 0 is not a class."""
    net = split_layers(nn.Sequential(nn.Embedding(CLASSES, 3)), world, {"0": Split.ROWS})
    try:
        net(torch.tensor([1, label] if world.rank == 0 else [2]))
    except (IndexError, RuntimeError) as error:
        return type(error).__name__
    return None


def further_axes(world):
    """What a split linear layer raises for inputs with an axis more."""
    net = split_layers(nn.Sequential(nn.Linear(3, 4)), world, {"0": Split.OUTPUTS})
    try:
        net(torch.ones(2, 5, 3))
    except DataError as error:
        return str(error)
    return None


def leaves_out(world):
    """What a rank reports, after 2 s, if the other does not call the second layer."""
    patience = dist.new_group(timeout=timedelta(seconds=2))
    waiting = replace(world, group=patience)
    splits = {"0": Split.OUTPUTS, "1": Split.OUTPUTS}
    net = split_layers(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), waiting, splits)
    try:
        if world.rank == 1:
            rows = net[0].ranks.rows(2)
            return rows.counts
        net[0](torch.ones(2, 3))
    except RankError as error:
        return str(error)
    return None
