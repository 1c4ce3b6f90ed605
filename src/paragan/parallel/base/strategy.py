"""Base class of strategies. By itself it places a whole network on one rank, which has the whole batch."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.capabilities import ALL, Capability, Holder
from paragan.core.dist import ALONE, RankExchange, World
from paragan.core.layout import Layout, Shape, StoredTensors, gather_full, layout_of, local_shard
from paragan.core.protocols import Network, Turn
from paragan.core.types import LossTerms, Side
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.parallel.base import blocks, forward_backward
from paragan.parallel.base.grad_norm import clip, norm_of
from paragan.parallel.base.master_weights import MasterWeights
from paragan.parallel.base.placement import placement_of
from paragan.parallel.base.reduction import NO_REDUCTION, Reduction

_NORMS = (AffineBatchNorm, ConditionalBatchNorm, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """Memory options of a player.

    recompute: activations inside a block are computed again in the backward. offload: optimiser
    state and float32 weights are in host memory. bf16_reduce: reductions of gradients or weights
    travel in bf16. weight_dtype: the dtype of the weights; the optimiser has float32 copies.
    norm_ranks: consecutive ranks that share the statistics of batch norm; None: all.
    """

    recompute: bool = False
    offload: bool = False
    bf16_reduce: bool = False
    weight_dtype: torch.dtype | None = None
    norm_ranks: int | None = None


NO_MEMORY_OPTIONS = MemoryOptions()


class Strategy:
    """Base class of strategies: placement of one player's network on ranks, and execution of its turns.

    A method that is not overridden is that of no parallelism. A strategy holds no state; a placed network does.
    """

    capabilities: frozenset[Capability] = ALL - {Capability.RANKS}
    """What settings, losses and penalties may need of a strategy, and this one has."""
    sharded_copies: int = 0
    """Tensors of the size of the weights of which each rank has a part only, for forecasts of memory.

    3: two moments of the optimiser and an average; 4: gradients too; 5: the weights too.
    """
    needs_hosts: bool = False
    """Whether it requires several hosts with several ranks each."""
    exemption: str = ""
    """Why several ranks differ from one rank on the whole batch; empty where they are equal."""

    def __init__(self, options: Any = None, memory: MemoryOptions = NO_MEMORY_OPTIONS) -> None:
        self.options = options
        self.memory = memory

    @property
    def holder(self) -> Holder:
        """Its name and capabilities, for checks."""
        name = type(self).__module__.rpartition(".")[2]
        return Holder(f"strategy {name}", self.capabilities, "use another strategy, such as ddp")

    @property
    def sync_period(self) -> int:
        """Number of updates after which all ranks have equal weights again."""
        return 1

    def refusal(self, net: nn.Module, num_ranks: int) -> str:
        """Return why that many ranks cannot train a network under this strategy; empty if they can."""
        return ""

    def prepare(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        """Build and shard the network; forward and names do not change."""
        return self.apply_memory_options(make())

    def apply_memory_options(self, net: nn.Module) -> nn.Module:
        """Apply the memory options of the player: activation checkpointing, weight dtype."""
        if self.memory.recompute:
            blocks.checkpoint_activations(net)
        if self.memory.weight_dtype is not None:
            _cast_weights(net, self.memory.weight_dtype)
        return net

    def training_module(self, net: nn.Module) -> nn.Module:
        """Return the module that runs in the turns of this network's player."""
        return net

    def prepare_average(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        """Build a second network for averaged weights."""
        return make()

    @property
    def spans_norms(self) -> bool:
        """Whether statistics of batch norm span ranks."""
        return Capability.RANKS in self.capabilities and self.memory.norm_ranks != 1

    def exchanges(self, weight_bytes: int, is_opponent: bool = False) -> tuple[RankExchange, ...]:
        """Return what the ranks exchange in one update of the player, for forecasts.

        weight_bytes: of the trained weights. is_opponent: in an update of the other player instead.
        """
        return ()

    def lr_factor(self, world: World) -> float:
        """Return the factor of all learning rates of the player on the ranks of `world`."""
        return 1.0

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser of the network's weights on this rank."""
        return self.optimizer_of(policy, dict(net.named_parameters()))

    def optimizer_of(self, policy: Any, weights: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        """Return the optimiser of these weights, with master weights if options need them."""
        if self.memory.weight_dtype is None and not self.memory.offload:
            return policy.optimizer(weights.items())
        first = next(iter(weights.values()))
        device = torch.device("cpu") if self.memory.offload else first.device
        return MasterWeights(weights, policy.optimizer, device)  # type: ignore[return-value]

    def forward_backward(
        self, turn: Turn, nets: Mapping[Side, Network], parts: int, scale: Tensor | None = None
    ) -> LossTerms:
        """Run the chain, one backward per micro-batch; return detached terms of local rows."""
        net = nets[turn.side].module
        gradient = partial(self.input_gradient, net, scale=scale)
        reduction = self.reduction(turn, net)
        with self.around_turn(turn, net):
            return forward_backward.forward_backward(turn, nets, parts, gradient, scale, reduction)

    def around_turn(self, turn: Turn, net: nn.Module) -> AbstractContextManager[None]:
        """Return what encloses the forward and backward passes of a turn. net: the player's training module."""
        return nullcontext()

    def reduction(self, turn: Turn, net: nn.Module) -> Reduction:
        """Return the reduction of a turn's gradients. net: the player's training module."""
        return NO_REDUCTION

    def input_gradient(self, net: nn.Module, out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """Return d sum(out_B) / dx with its graph, unscaled; raises if not differentiable."""
        return input_gradient(out_B, x, scale)

    def reduce_gradients(self, net: nn.Module, version: int, scale: Tensor | None = None) -> None:
        """Reduce gradients that the backward has not reduced, before `finish`.

        version: of the player after this update. scale: by which the gradients are multiplied.
        """

    def finish(self, net: nn.Module, max_norm: float | None, scale: Tensor | None = None) -> Tensor:
        """Finish the reduction, unscale, clip; return the float32 global norm before clipping."""
        grads = self.finished_gradients(net, scale)
        norm = self.gradient_norm(net, grads)
        clip(list(grads.values()), max_norm, norm)
        return norm

    def finished_gradients(self, net: nn.Module, scale: Tensor | None = None) -> dict[str, Tensor]:
        """Finish the reduction and unscale; return what `finish` clips, by name of the weight."""
        grads = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
        if scale is not None and grads:
            torch._foreach_mul_(list(grads.values()), 1 / scale)
        return grads

    def gradient_norm(self, net: nn.Module, grads: Mapping[str, Tensor]) -> Tensor:
        """Return the norm of these gradients over all ranks, 0-dim, at least float32."""
        return norm_of(list(grads.values()), None if grads else next(net.parameters()).device)

    def after_step(self, net: nn.Module) -> None:
        """Prepare the network for its next call, after the optimizer step of this rank."""

    def synchronize(self, net: nn.Module, optimizer: Any, version: int, counters: Sequence[Tensor]) -> None:
        """Synchronize the ranks after step number `version`, where due.

        counters: to be equal on all ranks then.
        """

    def is_synchronized(self, net: nn.Module, version: int) -> bool:
        """Return whether all ranks have equal weights after that many updates."""
        return True

    def device(self, net: nn.Module) -> torch.device:
        """Return the device that computes; weights may be stored on another (offload)."""
        return next(net.parameters()).device

    def world(self, net: nn.Module) -> World:
        """Return the ranks that share the batches of the network's player."""
        return placement_of(net).world if Capability.RANKS in self.capabilities else ALONE

    def rank_weight(self, net: nn.Module) -> float:
        """Return 1 / ranks, the weight of a number that is equal on all ranks of the batch."""
        return 1.0 / self.world(net).size

    def layout(self, net: nn.Module) -> Layout:
        """Return the layout of the parameters and buffers of a network, or its average, on this rank."""
        return {name: layout_of(value) for name, value in net.state_dict().items()}

    def shapes(self, net: nn.Module) -> dict[str, Shape]:
        """Return the shapes of all parameters and buffers of a network, on any rank."""
        return {name: box.shape for name, box in self.layout(net).items()}

    def parameter_names(self, net: nn.Module) -> list[str]:
        """Return the names of all parameters of a network, on any rank."""
        return [name for name, _ in net.named_parameters()]

    def optimizer_layout(self, net: nn.Module) -> Layout:
        """Return this rank's layout, by parameter, of what the optimiser steps."""
        return self.layout(net)

    def optimizer_replica(self, net: nn.Module) -> tuple[int, int]:
        """Return (replica number, replicas) of the optimiser state; (0, 1) if it is shared."""
        return 0, 1

    def weights(self, net: nn.Module) -> dict[str, Tensor]:
        """Return all parameters and buffers by name, unsharded. Collective."""
        return {name: gather_full(value.detach()) for name, value in net.state_dict().items()}

    def load(self, net: nn.Module, weights: StoredTensors) -> None:
        """Copy this rank's boxes of parameters and buffers into a network or its average."""
        boxes = self.layout(net)
        for name, value in net.state_dict().items():
            local_shard(value).copy_(weights.read(name, boxes[name]))


def input_gradient(out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return d sum(out_B) / dx with its graph, unscaled. scale: of the inner backward."""
    total = out_B.float().sum() if out_B.dtype in (torch.float16, torch.bfloat16) else out_B.sum()
    (grad,) = torch.autograd.grad(total if scale is None else total * scale, x, create_graph=True)
    if not grad.requires_grad:
        raise RuntimeError("the input gradient came back without a graph: this strategy is not differentiable twice")
    return grad if scale is None else grad / scale


def _cast_weights(net: nn.Module, dtype: torch.dtype) -> None:
    """Cast real weights to `dtype`, except those that must be float32; buffers do not change."""
    wide = _float32_parameters(net)
    for parameter in net.parameters():
        if id(parameter) not in wide and not parameter.is_complex():  # whose imaginary part a cast would drop
            parameter.data = parameter.data.to(dtype)


def _float32_parameters(net: nn.Module) -> set[int]:
    """Return the ids of weights of norms, local or torch's, and of modules with `keeps_float32`."""
    norms = [m.parameters(recurse=False) for m in net.modules() if isinstance(m, _NORMS)]
    marked = [m.parameters() for m in net.modules() if getattr(m, "keeps_float32", False)]
    return {id(p) for parameters in (*norms, *marked) for p in parameters}
