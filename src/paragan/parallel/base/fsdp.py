"""Base of zero2, zero3 and hsdp: FSDP2 over a mesh, one root module per player."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from paragan.core.capabilities import ALL, Capability
from paragan.core.dist import Collective, RankExchange, World
from paragan.core.layout import local_shard
from paragan.core.phases import Phase, phase
from paragan.core.protocols import Turn
from paragan.layers.all_reduce import ReduceGroup
from paragan.layers.cross_rank import convert
from paragan.parallel.base import strategy
from paragan.parallel.base.fsdp_traffic import count_traffic
from paragan.parallel.base.fully_shard import (
    build_sharded,
    check_steps_shards,
    is_replicated,
    mesh_of,
    reduced_last,
    shard,
)
from paragan.parallel.base.grad_norm import multiply_, norm_over
from paragan.parallel.base.placement import Placement, attach_placement, placement_of
from paragan.parallel.base.reduction import Reduction


class Sharded(strategy.Strategy):
    """Strategy of FSDP2 whose optimiser steps plain tensors, this rank's shards."""

    capabilities = ALL - {Capability.WHOLE_WEIGHTS, Capability.PURE, Capability.PADDING, Capability.COMPILE}
    name = "zero3"
    reshards_after_forward = True

    def mesh(self, world: World) -> DeviceMesh:
        """Return the device mesh that weights are sharded over."""
        return mesh_of(world)

    def prepare(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        mesh = self.mesh(world)

        def shard_net(net: nn.Module) -> nn.Module:
            convert(net, world, self.memory.norm_ranks)
            net = self.apply_memory_options(net)
            return shard(net, mesh, self.memory, self.reshards_after_forward)

        net = build_sharded(make, shard_net, self.memory.offload)
        if not self.reshards_after_forward:
            net.register_forward_pre_hook(_frees_outdated(tuple(net.parameters())), prepend=True)
        count_traffic(net, world, world.size // mesh["shard"].size())
        return attach_placement(net, Placement(world=world, training_module=net, mesh=mesh))

    def exchanges(self, weight_bytes: int, is_opponent: bool = False) -> tuple[RankExchange, ...]:
        # after the forward of a resharding strategy, the backward gathers the weights again
        gathers = 2 if self.reshards_after_forward else 1
        gathered = tuple(RankExchange(kind=Collective.ALL_GATHER, num_bytes=weight_bytes) for _ in range(gathers))
        if is_opponent:
            return gathered
        return (*gathered, RankExchange(kind=Collective.REDUCE_SCATTER, num_bytes=weight_bytes))

    def prepare_average(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        mesh = self.mesh(world)
        net = build_sharded(make, lambda net: shard(net, mesh))
        return attach_placement(net, Placement(world=world, training_module=net, mesh=mesh))

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        check_steps_shards(policy, self.name)
        # plain tensors: fused kernels, and the flag by which they skip a step, do not take a DTensor
        pieces = {k: local_shard(p.detach()).requires_grad_() for k, p in net.named_parameters()}
        placement_of(net).shards = list(zip(net.parameters(), pieces.values(), strict=True))
        return policy.optimizer(pieces.items())

    def around_turn(self, turn: Turn, net: nn.Module) -> AbstractContextManager[None]:
        # R1 reaches the weights of a block twice, by the logits and by the input gradient: a reduction right
        # after the block's own backward would miss whichever comes second.
        has_double_backward = any(Capability.DOUBLE_BACKWARD in penalty.needs for penalty in turn.penalties)
        return reduced_last(net) if has_double_backward else nullcontext()

    def reduction(self, turn: Turn, net: nn.Module) -> Reduction:
        assert isinstance(net, FSDPModule)

        @contextmanager
        def sync_context(reduces: bool) -> Iterator[None]:
            net.set_requires_gradient_sync(reduces)  # until then whole gradients are summed on this rank
            yield

        world = placement_of(net).world
        # a penalty that compares samples gathers them over all ranks, not over the mesh of a copy
        across = None if world.size == 1 else ReduceGroup(world.group, "a penalty", world.count)
        return Reduction(ranks=world.size, sync_context=sync_context, across=across)

    def input_gradient(self, net: nn.Module, out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
        assert isinstance(net, FSDPModule)
        # The inner backward must not free weights that the outer one needs.
        net.set_reshard_after_backward(False)
        try:
            return super().input_gradient(net, out_B, x, scale)
        finally:
            net.set_reshard_after_backward(True)

    def finished_gradients(self, net: nn.Module, scale: Tensor | None = None) -> dict[str, Tensor]:
        placement = placement_of(net)
        world = placement.world
        grads = {}
        for (name, _), (weight, piece) in zip(net.named_parameters(), placement.shards, strict=True):
            piece.grad = None if weight.grad is None else local_shard(weight.grad)
            # FSDP does not reduce the gradients of replicated weights.
            if piece.grad is not None and is_replicated(weight):
                world.count("parameters", piece.grad)
                with phase(Phase.COMMUNICATION):
                    dist.all_reduce(piece.grad, group=world.group)
                piece.grad /= world.size
            if piece.grad is not None:
                grads[name] = piece.grad
        if scale is not None and grads:
            multiply_(list(grads.values()), 1 / scale)
        return grads

    def gradient_norm(self, net: nn.Module, grads: Mapping[str, Tensor]) -> Tensor:
        placement = placement_of(net)
        world = placement.world
        # Replicated gradients count on one rank only.
        is_first = placement.mesh["shard"].get_local_rank() == 0
        once = [grad for grad in grads.values() if is_first or not is_replicated(grad)]
        return norm_over(once, placement.mesh["shard"].get_group(), world.device, world.count)

    def after_step(self, net: nn.Module) -> None:
        _reshard(net)  # gathered copies are those before the step

    def weights(self, net: nn.Module) -> dict[str, Tensor]:
        world = placement_of(net).world
        for value in net.state_dict().values():
            if world.size > 1 and isinstance(value, DTensor):
                num_ranks = value.device_mesh["shard"].size()
                piece = value.to_local()
                world.count("parameters", piece, collective=Collective.ALL_GATHER, num_ranks=num_ranks)
        return super().weights(net)

    def device(self, net: nn.Module) -> torch.device:
        return placement_of(net).world.device


def _reshard(net: nn.Module) -> None:
    """Free the gathered copies of all weights."""
    for module in net.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _frees_outdated(weights: tuple[Tensor, ...]) -> Callable[[nn.Module, Any], None]:
    """Return a hook before a forward that frees gathered copies whose `requires_grad` is not that of the weights.

    Copies stay after a forward that no backward follows, as that of an opponent, which is frozen;
    they get `requires_grad` when they are gathered, and would get no gradient in the turn of their own player.
    """

    def free(net: nn.Module, inputs: Any) -> None:
        pairs = zip(net.parameters(), weights, strict=True)
        if any(copy.requires_grad != weight.requires_grad for copy, weight in pairs):
            _reshard(net)

    return free
