"""DistributedDataParallel: a replica of the network on every rank, each with a share of the rows.

Only turns of the network's player go through the wrapper. As an opponent, frozen or without
gradients, it is the raw module: every forward of DDP needs its backward.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paragan.core.capabilities import ALL
from paragan.core.dist import Collective, RankExchange, World
from paragan.core.layout import is_sharded
from paragan.core.protocols import Turn
from paragan.layers.all_reduce import ReduceGroup
from paragan.layers.cross_rank import convert
from paragan.parallel.base import strategy
from paragan.parallel.base.placement import Placement, attach_placement, placement_of
from paragan.parallel.base.reduction import Reduction


class Strategy(strategy.Strategy):
    """torch's DistributedDataParallel around the network of one player."""

    capabilities = ALL

    def prepare(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        net = self.apply_memory_options(make())
        # Without other ranks the reducer would cost up to a seventh of a step.
        if world.size == 1:
            return attach_placement(net, Placement(world=world, training_module=net))
        convert(net, world, self.memory.norm_ranks)
        return self.wrap(net, world)

    def wrap(self, net: nn.Module, world: World) -> nn.Module:
        """Let DistributedDataParallel reduce the gradients of a network, except those of shards."""
        shards = [name for name, weight in net.named_parameters() if is_sharded(weight)]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, shards)
        # DDP warns that strides of axes of length 1 differ, which torch's kernels write and which is harmless.
        warnings.filterwarnings("ignore", message=r"(?s).*Grad strides do not match bucket view")
        wrapped = _FixedBuckets(net, process_group=world.group, gradient_as_bucket_view=True, **_buffer_options())
        if self.memory.bf16_reduce:
            wrapped.register_comm_hook(world.group, _bf16_hook)
        return attach_placement(net, Placement(world=world, training_module=wrapped))

    def training_module(self, net: nn.Module) -> nn.Module:
        return placement_of(net).training_module

    def exchanges(self, weight_bytes: int, is_opponent: bool = False) -> tuple[RankExchange, ...]:
        if is_opponent:
            return ()
        num_bytes = weight_bytes // 2 if self.memory.bf16_reduce else weight_bytes
        return (RankExchange(kind=Collective.ALL_REDUCE, num_bytes=num_bytes, overlaps=True),)

    def reduction(self, turn: Turn, net: nn.Module) -> Reduction:
        if not isinstance(net, DistributedDataParallel):
            return Reduction()
        placement = placement_of(cast(nn.Module, net.module))
        world = placement.world
        weights = [weight for weight in net.parameters() if not is_sharded(weight)]
        sizes = (p.numel() * (2 if self.memory.bf16_reduce else p.element_size()) for p in weights if p.requires_grad)
        world.count_bytes("parameters", sum(sizes))  # here, because this is called once per update
        kind_of_turn = (turn.chain, turn.needs_real, turn.feed.fakes is None)
        return Reduction(
            ranks=world.size,
            sync_context=lambda reduces: nullcontext() if reduces else net.no_sync(),
            zero_for_unused=partial(self._zero_for_unused, placement, weights, kind_of_turn),
            across=ReduceGroup(world.group, "a penalty", world.count),
        )

    def finished_gradients(self, net: nn.Module, scale: Tensor | None = None) -> dict[str, Tensor]:
        for weight in placement_of(net).idle:
            weight.grad = None
        return super().finished_gradients(net, scale)

    def _zero_for_unused(
        self,
        placement: Placement,
        weights: Sequence[nn.Parameter],
        kind_of_turn: tuple[Any, ...],
        roots: Sequence[Tensor],
        terms: Sequence[str],
    ) -> Tensor | None:
        """Return zeros that reach the weights which this kind of turn does not reach here.

        terms: names of those that the loss has: a weight may be reached by one of them only. `finished_gradients`
        removes gradients that no rank reaches: optimisers treat zero and None differently.
        """
        kind = (*kind_of_turn, *terms)
        # Once for each kind of turn, which is equal on all ranks: they gather here together.
        if kind not in placement.unreached:
            unreached = unreachable_parameters(roots, weights)
            ids = {id(weight) for weight in unreached}
            numbers = [number for number, weight in enumerate(weights) if id(weight) in ids]
            on_all_ranks = set.intersection(*map(set, placement.world.gather(numbers)))
            placement.unreached[kind] = unreached, [weights[number] for number in sorted(on_all_ranks)]
        unreached, idle = placement.unreached[kind]
        # The zeros join the last micro-batch alone: a weight that an earlier one reached has a gradient to keep.
        placement.idle = [weight for weight in idle if weight.grad is None]
        return zero_of(unreached) if unreached else None


class _FixedBuckets(DistributedDataParallel):
    """DistributedDataParallel with the same buckets of gradients in every step of every session.

    torch's buckets follow the order of gradients in the first step of a session. The order in which three or more
    ranks are added depends on the place in a bucket, so a resumed run would differ from one that did not stop.
    """

    def __init__(self, net: nn.Module, **options: Any) -> None:
        super().__init__(net, **options)
        self.reducer._push_all_rebuilt_params()
        self.reducer._rebuild_buckets()  # in the order of the pushes; torch rebuilds once at most

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        """Return the weights and which are sparse, last layer first, as gradients arrive: the order of the pushes."""
        weights, are_sparse = super()._build_params_for_reducer()
        return weights[::-1], are_sparse[::-1]


def unreachable_parameters(roots: Sequence[Tensor], weights: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Return the weights that no root depends on; torch's reducer waits for every gradient."""
    todo = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(todo)
    reached: set[int] = set()
    while todo:
        node = todo.pop()
        weight = getattr(node, "variable", None)  # set on AccumulateGrad nodes
        if weight is not None:
            reached.add(id(weight))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return [weight for weight in weights if weight.requires_grad and id(weight) not in reached]


def zero_of(weights: Sequence[nn.Parameter]) -> Tensor:
    """Return a zero whose graph reaches all these weights: their gradients become zeros."""
    return torch.stack([weight.flatten()[0].float() * 0.0 for weight in weights]).sum()


def _buffer_options() -> dict[str, Any]:
    """Return options that disable the broadcast of buffers; renamed in torch 2.13."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    name = "forward_sync_buffers"
    return {name if name in known else "broadcast_buffers": False}


# Without annotations: torch inspects them, and cannot resolve strings.
def _bf16_hook(group, bucket):  # type: ignore[no-untyped-def]
    """Reduce in bf16, half the bytes; torch's hook of this kind does not support gloo."""
    whole = bucket.buffer()
    half = whole.to(torch.bfloat16)
    reduced = dist.all_reduce(half, group=group, async_op=True).get_future()
    return reduced.then(lambda done: whole.copy_(done.value()[0]).div_(group.size()))
